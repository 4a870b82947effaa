"""Language models: a request in; texts, tokens and usage out."""
