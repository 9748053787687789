"""What a person types: each file is a command, `python -m posenc.NAME`."""
