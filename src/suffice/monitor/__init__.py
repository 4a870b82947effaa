"""Promises in use: streams in, alarms out."""
