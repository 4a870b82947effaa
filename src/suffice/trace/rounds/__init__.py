"""Traces of questions: frozen records, Arrow schema, reader, writer and validator."""
