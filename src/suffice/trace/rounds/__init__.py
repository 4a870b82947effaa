"""The trace of questions: frozen records, Arrow schema, reader, writer, validator."""
