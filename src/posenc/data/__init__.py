"""Text to batches: corpora -> tokens -> cache -> batches, each file a stage."""
