"""The model's computed cost, against MinerU2.5's known numbers and what torch counts while a small model runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.vision import VisionModel
from batchocr.planning.cost import decode_flop, num_parameters, prefill_flop, vision_flop
from tests.engine.test_cuda_layers import LANGUAGE as SMALL_LANGUAGE
from tests.engine.test_cuda_layers import VISION as SMALL_VISION
from tests.engine.test_cuda_layers import RandomWeights
from tests.support.mineru_shape import MINERU
from tests.support.whole_vit import encode

CPU = torch.device("cpu")
VISION, LANGUAGE = MINERU.vision, MINERU.language


def test_the_model_has_the_parameters_in_its_name() -> None:
    assert num_parameters(MINERU) == pytest.approx(1.2e9, rel=0.05)
    untied = replace(MINERU, language=replace(LANGUAGE, tied_embeddings=False))
    assert num_parameters(untied) - num_parameters(MINERU) == 151_936 * 896


def test_a_dense_page_takes_37_tera_operations() -> None:
    layout = 74 * 74
    blocks = [2_400] * 4 + [282] * 10
    assert layout + sum(blocks) == pytest.approx(17_900, rel=0.001)
    prompts = [patches // 4 + 30 for patches in (layout, *blocks)]
    answers = [230, *[250] * 4, *[25] * 10]
    assert sum(answers) == 1_480
    steps = [
        decode_flop(LANGUAGE, range(prompt, prompt + answer)) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    vision, prefill = vision_flop(VISION, [layout, *blocks]), prefill_flop(LANGUAGE, prompts)

    assert vision_flop(VISION, [layout]) == pytest.approx(11.9e12, rel=0.02)
    assert vision == pytest.approx(31.8e12, rel=0.03)
    assert prefill == pytest.approx(3.5e12, rel=0.06)
    assert sum(steps) == pytest.approx(1.5e12, rel=0.06)
    assert vision + prefill + sum(steps) == pytest.approx(36.8e12, rel=0.03)


def linear_flop(call: Callable[[], object]) -> int:
    """The operations that torch counts in matrix products; it does not count attention on a CPU."""
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        call()
    counts = counter.get_flop_counts()["Global"]
    assert {str(operation) for operation in counts} <= {"aten.mm", "aten.addmm"}
    return sum(counts.values())


def test_torch_counts_the_same_in_the_linear_layers_of_the_vision_model() -> None:
    model = VisionModel(SMALL_VISION, MINERU.images, RandomWeights(), Ops(CPU), Device(CPU))
    grids = [(4, 6), (2, 2)]
    patches = torch.zeros(28, SMALL_VISION.patch_width, dtype=torch.uint8)

    attention = 4.0 * (24**2 + 4**2) * SMALL_VISION.width * SMALL_VISION.depth
    counted = linear_flop(lambda: encode(model, patches, grids))
    assert vision_flop(SMALL_VISION, [24, 4]) == counted + attention


def test_torch_counts_the_same_in_the_linear_layers_of_the_language_model() -> None:
    ops = Ops(CPU)
    model = LanguageModel(SMALL_LANGUAGE, RandomWeights(), ops, CPU)
    lengths = [9, 4]
    cache, slots, positions = model.new_cache(2), torch.arange(13), torch.zeros(3, 13, dtype=torch.int64)
    segments = Segments(lengths, torch.tensor([0, 9, 13], dtype=torch.int32))
    tables = torch.tensor([[0], [1]], dtype=torch.int32)
    context = PagedContext(tables, torch.tensor(lengths, dtype=torch.int32))

    prefill = linear_flop(lambda: model.prefill(torch.zeros(13, 48), positions, slots, segments, cache))
    decode = linear_flop(
        lambda: model.decode(torch.tensor([1, 2]), positions[:, :2], torch.tensor([8, 19]), context, cache)
    )

    attention = 2.0 * SMALL_LANGUAGE.width * SMALL_LANGUAGE.num_layers
    assert prefill_flop(SMALL_LANGUAGE, lengths) == prefill + attention * (9**2 + 4**2)
    assert decode_flop(SMALL_LANGUAGE, lengths) == decode + 2 * attention * (9 + 4)
