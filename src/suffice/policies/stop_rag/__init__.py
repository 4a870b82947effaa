"""Stop-RAG: a learned value of stopping (paper 1)."""
