"""Documents as files for people and programs."""
