"""What needs a GPU, begun by `benchmarks.gpu.check`."""
