"""Recall of every retriever on several data sets side by side."""
