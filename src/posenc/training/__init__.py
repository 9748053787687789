"""Training one model: instantiate, fit, finish (`run.py`)."""
