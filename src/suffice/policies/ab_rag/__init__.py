"""AB-RAG (paper 2): stop when a confidence made of three signals reaches a threshold."""
