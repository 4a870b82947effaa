"""Retrieval: a corpus reader, and one interface to every ranking."""
