"""Records of rounds and plans, the files and databases that hold them, and one writer for both."""
