"""What needs a GPU, begun by `benchmarks.gpu.check`; and `virtual_gpu`, a forecast that needs none."""
