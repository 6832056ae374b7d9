"""The SMs of an NVIDIA GPU in two parts that share none, each with a stream: green contexts of CUDA's driver.

`torch.cuda.green_contexts` has no two such parts: each context that it makes is the first group of a split of the
whole device, and the remainder is dropped (torch 2.13, aten/src/ATen/cuda/CUDAGreenContext.cpp). So the driver is
called here, by cuda.h of CUDA 13.0 and 13.1, which agree in all that is used. Drivers have all of it from CUDA 12.5 on.
No GPU has run this yet; the tests hold it against the header, and against a library that is made from it.
"""

from __future__ import annotations

import ctypes
import logging
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_ubyte, c_uint, c_void_p
from typing import Any

import torch

from batchocr.errors import UsageError

logger = logging.getLogger(__name__)

_LIBRARY = "libcuda.so.1"

# Constants of cuda.h.
_TYPE_SM = 1
_DEFAULT_STREAM = 1
_NON_BLOCKING = 1


class _Resource(ctypes.Structure):
    """CUdevResource, ABI version 1: 144 bytes, of which only the driver writes any. sm_count: of type SM."""

    _fields_ = (
        ("type", c_uint),
        ("_internal_padding", c_ubyte * 92),
        ("sm_count", c_uint),
        ("_rest_of_union", c_ubyte * 36),
        ("_next_resource", c_void_p),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetDevResource": (c_int, POINTER(_Resource), c_int),
    "cuDevSmResourceSplitByCount": (
        POINTER(_Resource),
        POINTER(c_uint),
        POINTER(_Resource),
        POINTER(_Resource),
        c_uint,
        c_uint,
    ),
    "cuDevResourceGenerateDesc": (POINTER(c_void_p), POINTER(_Resource), c_uint),
    "cuGreenCtxCreate": (POINTER(c_void_p), c_void_p, c_int, c_uint),
    "cuGreenCtxStreamCreate": (POINTER(c_void_p), c_void_p, c_uint, c_int),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuGreenCtxDestroy": (c_void_p,),
}


def divided_streams(device: torch.device, decode_sms: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """A stream for decoding on SMs of its own, as many as asked or a few more, and one on all others.

    The first is the group, for which the driver promises clusters of thread blocks, and the second the remainder, which
    is large enough to have room for them anyway. They are never destroyed: torch keeps memory by stream until the
    process ends. Kernels that count a GPU's SMs still count all of them. Raises UsageError if the GPU, its driver or
    CUDA's MPS does not allow it; nothing is left behind then.
    """
    driver = _Driver()
    with ExitStack() as made:
        number, whole = c_int(), _Resource()
        driver.call("cuDeviceGet", byref(number), device.index or 0)
        driver.call("cuDeviceGetDevResource", number, byref(whole), _TYPE_SM)
        group, rest = _split(driver, whole, decode_sms)
        decode = _stream_on(driver, number, group, -1, made)
        side = _stream_on(driver, number, rest, 0, made)
        main_stream, side_stream = _of_torch(decode, device), _of_torch(side, device)
        made.pop_all()
    logger.info("%s: decoding has %d SMs of its own, all else %d", device, group.sm_count, rest.sm_count)
    return main_stream, side_stream


def _split(driver: _Driver, whole: _Resource, decode_sms: int) -> tuple[_Resource, _Resource]:
    """At least so many of the SMs, and the rest of them."""
    if not 0 < decode_sms < whole.sm_count:
        raise UsageError(f"decoding cannot have {decode_sms} SMs for itself: the GPU has {whole.sm_count}")
    group, rest, num_groups = _Resource(), _Resource(), c_uint(1)
    parts = byref(group), byref(num_groups), byref(whole), byref(rest)
    driver.call("cuDevSmResourceSplitByCount", *parts, 0, decode_sms)
    if num_groups.value != 1 or rest.type != _TYPE_SM or not (group.sm_count and rest.sm_count):
        raise UsageError(f"decoding cannot have {decode_sms} of {whole.sm_count} SMs for itself: none would be left")
    return group, rest


def _stream_on(driver: _Driver, number: c_int, sms: _Resource, priority: int, made: ExitStack) -> int:
    """A stream on these SMs. made: what destroys it."""
    description, context, stream = c_void_p(), c_void_p(), c_void_p()
    driver.call("cuDevResourceGenerateDesc", byref(description), byref(sms), 1)
    driver.call("cuGreenCtxCreate", byref(context), description, number, _DEFAULT_STREAM)
    made.callback(driver.free, "cuGreenCtxDestroy", context)
    driver.call("cuGreenCtxStreamCreate", byref(stream), context, _NON_BLOCKING, priority)
    made.callback(driver.free, "cuStreamDestroy_v2", stream)
    assert stream.value is not None
    return stream.value


def _of_torch(stream: int, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]


class _Driver:
    """CUDA's driver, as the process has it already through torch. Raises UsageError if it is older than CUDA 12.5."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(_LIBRARY)
            self._functions = {name: getattr(library, name) for name in _SIGNATURES}
        except (OSError, AttributeError) as error:
            raise UsageError(f"a GPU's SMs cannot be divided with this driver, it takes CUDA 12.5: {error}") from error
        for name, function in self._functions.items():
            function.argtypes, function.restype = _SIGNATURES[name], c_int

    def call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code:
            raise UsageError(f"this GPU's SMs cannot be divided: {name} says {self._error(code)}")

    def free(self, name: str, handle: c_void_p) -> None:
        """Destroy what was made, after another error that is to be raised."""
        code = self._functions[name](handle)
        if code:
            logger.warning("%s says %s", name, self._error(code))

    def _error(self, code: int) -> str:
        text = c_char_p()
        if self._functions["cuGetErrorString"](code, byref(text)) or text.value is None:
            return f"error {code}"
        return f"{text.value.decode(errors='replace')} (error {code})"
