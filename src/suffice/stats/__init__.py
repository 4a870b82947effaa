"""Arrays in, numbers out: no question and no file is known here.

Calibration maps, order statistics, tests and intervals; a class only holds fitted numbers.
"""
