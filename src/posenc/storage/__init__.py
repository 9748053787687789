"""Files on disk: atomic writes and defensive reads."""
