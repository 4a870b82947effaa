"""Recording of a data set to its full budget, resumable."""
