"""Retrieval: reading a corpus, and one way to passages whatever ranks them."""
