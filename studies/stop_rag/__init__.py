"""The evaluation of Stop-RAG (paper 1, sections 5 and 6)."""
