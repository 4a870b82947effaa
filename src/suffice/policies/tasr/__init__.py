"""TASR (paper 0): stop when the answer repeats and its calibrated margin clears a floor."""
