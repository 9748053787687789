"""Files on disk: written atomically, read with suspicion."""
