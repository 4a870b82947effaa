"""Recording a data set to its full budget, resumable."""
