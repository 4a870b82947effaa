"""What retrievers find in pooled corpora (the AB-RAG paper, V)."""
