"""Agents of other frameworks watched, and retrievers of the user's own."""
