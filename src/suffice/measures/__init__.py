"""Scores, signals and costs of a trace set, measured once."""
