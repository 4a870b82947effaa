"""Replay policies on recorded rounds and compare them honestly."""
