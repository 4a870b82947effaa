"""Published experiments and training scripts: seed in, table out."""
