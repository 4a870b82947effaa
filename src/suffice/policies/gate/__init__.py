"""Confidence-gated retrieval: a planning agent acts, retrieves, thinks again, asks or stops."""
