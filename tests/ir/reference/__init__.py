"""An independent meaning for every operator, and cases to hold it against ours.

`meaning.REFERENCE` says what each operator computes in terms of numpy and scipy alone; `case.CASES`
draws arguments and attributes for each; `run.run` computes what our record means.
"""
