"""How fast the engine and whole runs are, and other programs on the same pages."""
