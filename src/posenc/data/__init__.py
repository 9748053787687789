"""Text to batches: corpora -> tokens -> cache -> batches, one file per stage."""
