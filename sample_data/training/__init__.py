"""Trains the sample model to read: `python -m sample_data.training --help`."""
