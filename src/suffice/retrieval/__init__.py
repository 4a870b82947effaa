"""Retrieval: reading a corpus and ranking passages with BM25."""
