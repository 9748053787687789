"""The page and the figures of the claim map."""
