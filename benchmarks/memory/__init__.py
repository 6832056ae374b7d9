"""What a run holds over many pages: `python -m benchmarks.memory`."""
