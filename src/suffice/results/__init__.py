"""Results as people and programs read them: strict JSON, tables in six forms, numbers as text."""
