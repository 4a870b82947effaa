"""Rankings by vectors: encoders and indexes of unit vectors."""
