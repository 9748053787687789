"""From YAML and a command line to objects, and every refusal on that way in one sentence."""
