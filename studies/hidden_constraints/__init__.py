"""Judges of plans against people, over several records, and the paper's Table 7 from its own definitions."""
