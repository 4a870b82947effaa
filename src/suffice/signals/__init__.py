"""Signals: one number per round, computed from the rounds so far."""
