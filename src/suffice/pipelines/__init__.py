"""Loops that retrieve and answer, the recorder, and the live controller."""
