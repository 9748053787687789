"""The commands, one per file: `posenc NAME` or `python -m posenc.NAME`."""
