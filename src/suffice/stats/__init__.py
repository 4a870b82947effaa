"""Statistics: arrays in, numbers out, without questions or files.

Calibration maps, order statistics, tests and intervals; a class only holds fitted numbers.
"""
