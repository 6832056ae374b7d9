"""Linear layers in int8: how far they are from the layer they replace, which layers they replace, and where."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from batchocr.engine.backend import vision_ops
from batchocr.engine.backend.base import Activation, Affine
from batchocr.engine.backend.cpu import CpuOps, Int8Use
from batchocr.engine.backend.cpu_int8 import Int8Linear, row_scales
from batchocr.engine.backend.reference import ReferenceOps
from batchocr.errors import UsageError
from batchocr.machine import multiplies_int8
from batchocr.planning.dtype import choose_dtype
from batchocr.processes.engine_messages import DeviceFound

CPU = torch.device("cpu")
FOUND = DeviceFound("cpu", ("cpu",), "cpu", 1 << 34)
choose = partial(choose_dtype, stored="bfloat16", num_parameters=1_200_000_000)

needs_units = pytest.mark.skipif(not multiplies_int8(), reason="this CPU has no units for int8")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape).to(torch.bfloat16)


def layer(out: int, inner: int) -> Affine:
    return Affine(random(out, inner) / inner**0.5, random(out))


def relative_error(values: Tensor, expected: Tensor) -> float:
    return float((values.float() - expected.float()).norm() / expected.float().norm())


@needs_units
@pytest.mark.parametrize(("use", "error"), [("exact", 0.007), ("rounded", 0.01)])
@pytest.mark.parametrize("rows", [1, 7, 600])
def test_a_layer_is_off_by_less_than_one_per_cent(use: Int8Use, error: float, rows: int) -> None:
    each, x, residual = layer(640, 1280), random(rows, 1280), random(rows, 640)
    exact, int8 = ReferenceOps(CPU).linear(each), CpuOps(int8=use).linear(each)
    assert isinstance(int8, Int8Linear)
    assert int8(x).dtype == torch.bfloat16
    assert relative_error(int8(x), exact(x)) < error
    assert relative_error(int8(x, residual.clone()), exact(x, residual.clone())) < error


@needs_units
@pytest.mark.parametrize("activation", ["quick_gelu", "gelu", "silu_mul"])
@pytest.mark.parametrize(("use", "error"), [("exact", 0.012), ("rounded", 0.02)])
@pytest.mark.parametrize("rows", [1, 600])
def test_an_mlp_is_off_by_less_than_two_per_cent(activation: Activation, use: Int8Use, error: float, rows: int) -> None:
    inner, outer = layer(1024, 256), layer(256, 512 if activation == "silu_mul" else 1024)
    x, residual = random(rows, 256), random(rows, 256)
    exact, int8 = (ops.mlp(inner, outer, activation) for ops in (ReferenceOps(CPU), CpuOps(int8=use)))
    assert relative_error(int8(x), exact(x)) < error
    assert relative_error(int8(x, residual.clone()), exact(x, residual.clone())) < error


@needs_units
def test_rows_in_groups_are_the_rows_one_by_one_and_the_residual_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = CpuOps(int8="exact")
    without_bias, x, residual = Affine(layer(64, 128).weight), random(300, 128), random(300, 64)
    linear = ops.linear(without_bias)
    expected = torch.cat([linear(row, before.clone()) for row, before in zip(x.split(1), residual.split(1))])  # noqa: B905
    monkeypatch.setattr("batchocr.engine.backend.cpu_int8._ROWS_PER_CORE", 16)
    total = linear(x, residual)
    assert total is residual
    assert torch.equal(total, expected)


@needs_units
def test_outliers_among_the_activations_cost_nothing_where_they_come_in_two_parts() -> None:
    each, x = layer(640, 1280), random(8, 1280)
    x[:, :2] *= 300
    weight = each.weight.clone()
    weight[:, :2] = 0  # so that the other values decide
    each = Affine(weight)
    exact = ReferenceOps(CPU).linear(each)(x)
    errors = [relative_error(CpuOps(int8=use).linear(each)(x), exact) for use in ("exact", "rounded")]
    assert errors[0] < 0.01 < 0.3 < errors[1]


@needs_units
def test_whole_numbers_are_multiplied_exactly_at_the_limits_of_the_type() -> None:
    x = torch.full((3, 4096), 127.0).to(torch.bfloat16)
    x[1, ::2] = -127
    each = Affine(x[:2].clone())
    expected = x.double() @ each.weight.double().t()
    assert torch.equal(Int8Linear(each, in_two_parts=False)(x).double(), expected.to(torch.bfloat16).double())


@needs_units
def test_rows_and_outputs_of_very_different_size_are_as_exact() -> None:
    sizes = torch.logspace(-4, 4, 64).unsqueeze(1)
    weight, x = torch.randn(64, 256), torch.randn(64, 256)
    each = Affine((weight * sizes).bfloat16())
    values = CpuOps(int8="exact").linear(each)((x * sizes).bfloat16())
    assert relative_error(values / sizes / sizes.t(), x @ weight.t()) < 0.015


def test_a_row_of_zeros_has_a_scale() -> None:
    assert row_scales(torch.zeros(2, 16, dtype=torch.bfloat16)).min() > 0


def test_layers_whose_inputs_are_bytes_stay_in_bfloat16() -> None:
    assert not isinstance(CpuOps(int8="exact").linear(layer(1280, 588)), Int8Linear)


@pytest.mark.parametrize("amx", [True, False])
def test_the_vision_model_is_in_int8_where_there_is_no_amx(monkeypatch: pytest.MonkeyPatch, amx: bool) -> None:
    monkeypatch.setattr("batchocr.engine.backend.cpu.has_amx", lambda: amx)
    ops = vision_ops(CpuOps(int8="exact"), "auto")
    assert isinstance(ops.linear(layer(64, 64)), Int8Linear) is not amx


@pytest.mark.parametrize(
    ("found", "units", "message"),
    [
        (replace(FOUND, device="cuda:0", backend="cuda"), True, "--dtype int8 is for CPUs"),
        (replace(FOUND, backend="reference"), True, "needs --backend cpu"),
        (FOUND, False, "this CPU has no units for it"),
    ],
    ids=["on a GPU", "another backend", "no units"],
)
def test_int8_is_refused_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch, found: DeviceFound, units: bool, message: str
) -> None:
    monkeypatch.setattr("batchocr.planning.dtype.multiplies_int8", lambda: units)
    with pytest.raises(UsageError, match=message):
        choose("int8", found)


def test_auto_goes_on_in_int8_and_never_begins_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.planning.dtype.multiplies_int8", lambda: True)
    assert choose("auto", replace(FOUND, bfloat16_speedup=3.0)).dtype == "bfloat16"
    assert choose("auto", FOUND, begun_in="int8").dtype == "int8"
    monkeypatch.setattr("batchocr.planning.dtype.multiplies_int8", lambda: False)
    with pytest.raises(UsageError, match="the output was begun in int8, for which this CPU has no units"):
        choose("auto", FOUND, num_parameters=1000, begun_in="int8")
