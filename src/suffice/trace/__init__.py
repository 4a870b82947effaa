"""Recorded rounds and plans, and the durable files that hold them: one writer for both."""
