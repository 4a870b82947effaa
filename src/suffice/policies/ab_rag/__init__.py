"""AB-RAG (paper 2): stop when a confidence of three signals reaches a threshold."""
