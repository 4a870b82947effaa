"""Arrow columns in, numpy arrays out; no Python object is made of a row, a token or a passage."""
