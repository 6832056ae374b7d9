"""Our Triton kernels for NVIDIA GPUs, each in a function that launches it. Only the CUDA backend imports these modules.

All of them are limited by memory traffic, so each docstring counts the bytes moved. Block sizes are chosen by
reasoning, not tuned on the first run, and no launch waits for the device, so that it can be captured in a CUDA graph.
Floating-point arithmetic is in float32. Every launch sets fused multiply-add explicitly, because Triton's default
differs between releases. Numbers that change from batch to batch are not specialised on (Triton would recompile for 1
and for multiples of 16).
"""
