"""Signals that ask a model, an encoder or a reranker, and how a whole record is asked."""
