"""analysis: what transformations need to know about programs: index terms, accesses, dependence,
memory.
"""
