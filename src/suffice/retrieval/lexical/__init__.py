"""Rankings by words: BM25 and TF-IDF."""
