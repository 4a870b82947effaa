"""Arrow columns in, numpy arrays out: texts by distinct value, ragged lists, and scores of answers.

No Python object is made of a row, a token or a passage.
"""
