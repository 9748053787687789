"""Loading and evaluating finished runs."""
