"""Calibration: arrays in, fitted numbers out."""
