"""The hidden-constraint benchmark: planning tasks that a lexical look at goal and context cannot solve."""
