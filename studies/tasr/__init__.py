"""TASR on several records at once (paper 0)."""
