"""Kernels from Arrow columns to numpy arrays, without a Python object per row, token or passage."""
