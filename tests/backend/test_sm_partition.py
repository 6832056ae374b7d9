"""SMs are divided by the calls that cuda.h asks for, and nothing is left behind where one fails.

The driver is a library made from Triton's copy of the header: `support/driver_stub.c`.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from batchocr.backend import sm_partition
from batchocr.backend.cuda_device import CudaDevice
from batchocr.backend.sm_partition import divided_streams
from batchocr.errors import UsageError
from tests.conftest import ROOT

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

DEVICE = torch.device("cuda", 1)
FIRST_STREAM, SECOND_STREAM = 0x7F0000000200, 0x7F0000000400
CALLS = [
    "device 1",
    "SMs of 71, type 1",
    "split 132 into 1 of 24, flags 0",
    "describe 24 SMs, 1",
    "context 1 of 24 SMs on 71, flags 1",
    "stream 2 in context 1, flags 1, priority -1",
    "describe 108 SMs, 1",
    "context 3 of 108 SMs on 71, flags 1",
    "stream 4 in context 3, flags 1, priority 0",
]


@dataclass(frozen=True)
class ExternalStream:
    handle: int
    device: torch.device


def compile_driver(folder: Path, *options: str) -> Path:
    library = folder / "libcuda.so.1"
    include = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    source = ROOT / "tests" / "support" / "driver_stub.c"
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{include}", *options, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_driver(tmp_path_factory.mktemp("driver"))))


Begin = Callable[..., None]


@pytest.fixture
def begin(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins anew: which call fails, how many SMs the GPU has, and of how many a group has a multiple."""
    library.calls.restype = ctypes.c_char_p
    monkeypatch.setattr(sm_partition, "_LIBRARY", library._name)
    monkeypatch.setattr(torch.cuda, "ExternalStream", ExternalStream)

    def begin(*, failing: int = 0, sms: int = 132, multiple: int = 8) -> None:
        library.begin(failing, sms, multiple)

    begin()
    return begin


def calls(library: ctypes.CDLL) -> list[str]:
    return str(library.calls().decode()).splitlines()


def test_the_struct_is_the_one_of_cudas_header(library: ctypes.CDLL) -> None:
    assert ctypes.sizeof(sm_partition._Resource) == library.resource_bytes() == 144
    assert sm_partition._Resource.sm_count.offset == library.sm_count_at()


def test_decoding_and_the_rest_have_streams_on_sms_of_their_own(library: ctypes.CDLL, begin: Begin) -> None:
    decode, rest = divided_streams(DEVICE, 24)
    assert (decode, rest) == (ExternalStream(FIRST_STREAM, DEVICE), ExternalStream(SECOND_STREAM, DEVICE))
    assert calls(library) == CALLS


@pytest.mark.parametrize("failing", range(1, len(CALLS) + 1))
def test_whatever_was_made_is_destroyed_if_a_later_call_fails(library: ctypes.CDLL, begin: Begin, failing: int) -> None:
    begin(failing=failing)
    with pytest.raises(UsageError, match=r"cuD?\w+ says operation not supported \(error 801\)"):
        divided_streams(DEVICE, 24)
    done, made = calls(library), CALLS[: failing - 1]
    assert done[:failing] == CALLS[:failing]
    handles = [found[1] for call in made if (found := re.match(r"((?:context|stream) \d)", call))]
    assert done[failing:] == [f"destroy {handle}" for handle in reversed(handles)]


def test_nothing_is_left_behind_if_torch_does_not_take_the_streams(
    library: ctypes.CDLL, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.cuda, "ExternalStream")
    with pytest.raises(AttributeError):
        divided_streams(DEVICE, 24)
    assert calls(library)[-4:] == ["destroy stream 4", "destroy context 3", "destroy stream 2", "destroy context 1"]


@pytest.mark.parametrize(("sms", "decode_sms"), [(132, 132), (132, 0), (128, 121), (20, 24)])
def test_sms_that_leave_none_for_the_rest_are_refused(
    library: ctypes.CDLL, begin: Begin, sms: int, decode_sms: int
) -> None:
    begin(sms=sms)
    with pytest.raises(UsageError, match=f"decoding cannot have {decode_sms} "):
        divided_streams(DEVICE, decode_sms)
    assert not any("context" in call for call in calls(library))


def test_what_the_driver_cannot_name_is_an_error_number(begin: Begin) -> None:
    begin(sms=20, multiple=16)
    with pytest.raises(UsageError, match=r"cuDevSmResourceSplitByCount says error 915"):
        divided_streams(DEVICE, 17)


def test_a_driver_without_streams_in_green_contexts_is_too_old(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sm_partition, "_LIBRARY", str(compile_driver(tmp_path, "-DOLD")))
    with pytest.raises(UsageError, match=r"takes CUDA 12\.5: .*cuGreenCtxStreamCreate"):
        divided_streams(DEVICE, 24)


def test_no_driver_is_an_error_that_says_so(begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sm_partition, "_LIBRARY", str(tmp_path / "libcuda.so.1"))
    with pytest.raises(UsageError, match="cannot be divided with this driver"):
        divided_streams(DEVICE, 24)


def test_the_device_decodes_on_its_own_sms_and_encodes_beside_them(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[ExternalStream] = []

    class Current:
        def __init__(self, stream: ExternalStream) -> None:
            entered.append(stream)

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(ExternalStream, "wait_stream", lambda stream, other: None, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", Current)
    device = CudaDevice(DEVICE, decode_sms=24)
    with device.main(), device.beside():
        pass
    assert [stream.handle for stream in entered] == [FIRST_STREAM, SECOND_STREAM]
