"""Choice among policies: one with a promise, and every rule of a form."""
