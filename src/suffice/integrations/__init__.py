"""Adapters of other agent frameworks, and the user's own retrievers."""
