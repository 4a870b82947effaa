"""Results for people and programs: strict JSON, tables in six forms, numbers as text."""
