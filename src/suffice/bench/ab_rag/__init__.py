"""The evaluation of AB-RAG (paper 2, V)."""
