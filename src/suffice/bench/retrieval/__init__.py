"""Recall of retrievers on a data set."""
