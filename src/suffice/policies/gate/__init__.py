"""Confidence-gated retrieval: when a planning agent should act, look things up, think again, ask or stop."""
