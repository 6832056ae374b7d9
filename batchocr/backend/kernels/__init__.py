"""Our Triton kernels for NVIDIA GPUs, as custom operators of torch. Only the CUDA backend imports these modules.

All of them are limited by the bytes they move, so each docstring counts them. Block sizes are fixed by reasoning, not
tuned when first run, and no launch waits for the device, so that it can be captured in a CUDA graph. Arithmetic is in
float32. Every launch asks for fused multiply-add, as Triton's default for it differs between releases. A number that
changes from batch to batch is not specialised on (Triton would compile anew for 1 and for multiples of 16).
"""
