"""Published experiments repeated on records at hand: one module a paper, thin on top of the package."""
