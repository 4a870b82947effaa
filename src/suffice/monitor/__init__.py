"""Monitoring of promises in use: streams in, alarms out."""

from suffice.monitor.alarms import CoverageMonitor as CoverageMonitor
from suffice.monitor.alarms import ExchangeabilityMonitor as ExchangeabilityMonitor
