"""Recorded rounds: records, schema, reader, writer."""
