"""Signals that call a model, an encoder or a reranker, and their run over a whole record."""
