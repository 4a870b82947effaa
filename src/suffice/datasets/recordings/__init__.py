"""Recordings that others made, as records: one reader a format, all named in the registry."""
