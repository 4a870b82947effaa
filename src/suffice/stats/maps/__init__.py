"""Calibration maps: from a signal to P(EM = 1), fitted, written to JSON and read from it."""
