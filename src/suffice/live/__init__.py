"""Policies in a running loop: Watch, Controller and ``ask``."""
