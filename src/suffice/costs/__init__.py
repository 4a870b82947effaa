"""Costs of recorded rounds, computed from their usage."""
