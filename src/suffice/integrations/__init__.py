"""Retrievers of other frameworks and servers, made to fit :class:`suffice.contracts.Retriever`."""
