"""Policies: rules and methods that decide when to stop."""
