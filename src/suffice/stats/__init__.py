"""Statistics: arrays in, numbers out, without questions or files.

It holds calibration maps, order statistics, tests and intervals; a class only holds fitted numbers.
"""
