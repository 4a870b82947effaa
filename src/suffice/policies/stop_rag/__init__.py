"""Stop-RAG: a learned value of stopping (METHODS section 2)."""
