"""analysis: what is asked of programs by all who change them: indices, accesses, dependence,
memory.
"""
