"""Our calls to sgl_kernel against the signatures of its releases; the library itself does not run without a GPU.

A stand-in has these signatures, and computes what the library would from the arguments that its parameters get. The
signatures are recorded in data/sgl_kernel_signatures.json from unpacked wheels (`unzip sglang_kernel-*.whl -d FOLDER`):

    python tests/engine/test_sgl_kernel_calls.py FOLDER...
"""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend.attention_kernels import ATTENTION, PAGED_ATTENTION
from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.reference import ReferenceOps

SIGNATURES = Path(__file__).parent / "data" / "sgl_kernel_signatures.json"
USED = ("flash_attn_varlen_func", "flash_attn_with_kvcache")
"""The functions we call, from `sgl_kernel.flash_attn`."""

CPU = torch.device("cpu")
REFERENCE = ReferenceOps(CPU)


@dataclass
class StandIn:
    """calls: each call's function and its arguments by name, without those left to their defaults."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def function(self, name: str, parameters: dict[str, list[str]]) -> Callable[..., Tensor]:
        signature = Signature(
            [Parameter(required, Parameter.POSITIONAL_OR_KEYWORD) for required in parameters["required"]]
            + [
                Parameter(optional, Parameter.POSITIONAL_OR_KEYWORD, default=None)
                for optional in parameters["optional"]
            ]
        )

        def call(*args: object, **kwargs: object) -> Tensor:
            arguments = signature.bind(*args, **kwargs).arguments
            self.calls.append((name, arguments))
            return COMPUTED[name](**arguments)

        return call


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
) -> Tensor:
    lengths = cu_seqlens_q.diff().tolist()
    assert torch.equal(cu_seqlens_q, cu_seqlens_k)
    assert max_seqlen_q == max_seqlen_k == max(lengths)
    return REFERENCE.attention(q, k, v, Segments(lengths, cu_seqlens_q), causal)


def attention_with_cache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, cache_seqlens: Tensor, page_table: Tensor, causal: bool
) -> Tensor:
    assert causal and q.shape[1] == 1
    context = PagedContext(page_table, cache_seqlens)
    return REFERENCE.paged_attention(q[:, 0], torch.stack([k_cache, v_cache]), context).unsqueeze(1)


COMPUTED: dict[str, Callable[..., Tensor]] = {
    "flash_attn_varlen_func": attention,
    "flash_attn_with_kvcache": attention_with_cache,
}


@pytest.fixture(params=["0.4.5", "0.4.8"])
def sgl_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in for a release, in place of the library."""
    stand_in = StandIn()
    recorded = json.loads(SIGNATURES.read_text())[request.param]
    for module in ("sgl_kernel", "sgl_kernel.flash_attn"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    for name in USED:
        setattr(sys.modules["sgl_kernel.flash_attn"], name, stand_in.function(name, recorded[name]))
    return stand_in


@pytest.fixture(autouse=True)
def capability(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets that of the GPU; at first, an H100's."""

    def set_to(major: int, minor: int) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (major, minor))

    set_to(9, 0)
    return set_to


@pytest.mark.parametrize("of_gpu", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_fa3_is_not_even_loaded_where_it_has_no_code(
    sgl_kernel: StandIn, capability: Callable[[int, int], None], of_gpu: tuple[int, int]
) -> None:
    capability(*of_gpu)
    for candidates in (ATTENTION, PAGED_ATTENTION):
        if of_gpu[0] in (8, 9):
            sgl_candidate(candidates)
        else:
            with pytest.raises(NotImplementedError, match=f"built for sm_80 to sm_90, .* sm_{of_gpu[0]}{of_gpu[1]}"):
                sgl_candidate(candidates)


def sgl_candidate(candidates: tuple[Any, ...]) -> Callable[..., Tensor]:
    [candidate] = [candidate for candidate in candidates if candidate.name.startswith("sgl_kernel")]
    operation: Callable[..., Tensor] = candidate.load()
    return operation


def is_int32(value: Tensor, *shape: int) -> bool:
    return value.dtype == torch.int32 and value.shape == shape


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(14, 2, 64), (16, 16, 80)])
def test_attention_over_segments(sgl_kernel: StandIn, heads: int, kv_heads: int, head_dim: int, causal: bool) -> None:
    lengths = [5, 1, 9]
    segments = Segments(lengths, torch.tensor([0, 5, 6, 15], dtype=torch.int32))
    q, k, v = torch.randn(15, heads + 2 * kv_heads, head_dim).split([heads, kv_heads, kv_heads], dim=1)

    attended = sgl_candidate(ATTENTION)(q, k, v, segments, causal)

    torch.testing.assert_close(attended, REFERENCE.attention(q, k, v, segments, causal))
    [(name, arguments)] = sgl_kernel.calls
    assert name == "flash_attn_varlen_func"
    assert is_int32(arguments["cu_seqlens_q"], 4) and is_int32(arguments["cu_seqlens_k"], 4)
    assert (arguments["max_seqlen_q"], arguments["max_seqlen_k"]) == (9, 9)
    assert arguments["causal"] is causal


def test_attention_over_the_cache(sgl_kernel: StandIn) -> None:
    lengths = [1, 64, 130]
    tables = torch.tensor([[3, 0, 0], [5, 0, 0], [6, 1, 4]], dtype=torch.int32)
    context = PagedContext(tables, torch.tensor(lengths, dtype=torch.int32))
    q, cache = torch.randn(3, 14, 64), torch.randn(2, 7, 64, 2, 64)

    attended = sgl_candidate(PAGED_ATTENTION)(q, cache, context)

    torch.testing.assert_close(attended, REFERENCE.paged_attention(q, cache, context))
    [(name, arguments)] = sgl_kernel.calls
    assert name == "flash_attn_with_kvcache"
    assert is_int32(arguments["page_table"], 3, 3) and is_int32(arguments["cache_seqlens"], 3)
    assert arguments["q"].shape == (3, 1, 14, 64)
    assert arguments["k_cache"].shape == arguments["v_cache"].shape == (7, 64, 2, 64)


def read_signatures(wheel: Path) -> tuple[str, dict[str, dict[str, list[str]]]]:
    """The version in an unpacked wheel, and the parameters of the functions in USED; of the wheel, only the file that
    holds the version is run."""
    version = runpy.run_path(str(wheel / "sgl_kernel" / "version.py"))["__version__"]
    tree = ast.parse((wheel / "sgl_kernel" / "flash_attn.py").read_text())
    found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in USED}
    return version, {name: _parameters(found[name]) for name in USED}


def _parameters(function: ast.FunctionDef) -> dict[str, list[str]]:
    """The names of its parameters, all of which may be passed by position or by name."""
    arguments = function.args
    assert not (arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg), function.name
    names = [argument.arg for argument in arguments.args]
    num_required = len(names) - len(arguments.defaults)
    return {"required": names[:num_required], "optional": names[num_required:]}


if __name__ == "__main__":
    SIGNATURES.parent.mkdir(exist_ok=True)
    recorded = dict(read_signatures(Path(folder)) for folder in sys.argv[1:])
    SIGNATURES.write_text(json.dumps(recorded, indent=2) + "\n")
