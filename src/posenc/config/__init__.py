"""From YAML and command line to validated objects, with one-sentence errors."""
