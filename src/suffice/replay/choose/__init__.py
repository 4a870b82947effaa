"""Choice among policies: search, sweep and certified choice."""
