"""AB-RAG on several records: its tables and figures, and what it costs by one price list."""
