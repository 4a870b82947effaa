"""The sections of a report: functions from results to what is shown."""
