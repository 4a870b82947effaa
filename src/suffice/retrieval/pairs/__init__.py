"""Networks that read two texts together: rerankers, entailment, contradiction."""
