"""Signals: a number per round, computed from the rounds so far."""
