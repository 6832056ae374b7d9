"""The engine against transformers: the same positions, embeddings and tokens, whatever the batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.rope import mrope_positions
from batchocr.processes.meter import Meter
from tests.support.checkpoints import (
    SHAPES,
    SMALL_LIMITS,
    TokenIdFormat,
    answers_of,
    make_checkpoint,
    oracle,
    tokenizer,
)
from tests.support.late_device import CapturableOps, LateDevice
from tests.support.whole_vit import encode

pytestmark = pytest.mark.slow

MAX_NEW_TOKENS = 34
PENALTY = 1.3
PROMPTS = ["\nLayout Detection:", "\nText Recognition:", "\nTable Recognition: please"]


@dataclass(frozen=True)
class Case:
    """A checkpoint, requests, and what transformers answers to each of them alone."""

    folder: Path
    model: Model
    images: list[Image.Image]
    prompts: list[str]
    expected: list[str]


def picture(seed: int, width: int, height: int) -> Image.Image:
    noise = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.manual_seed(seed))
    return Image.fromarray(noise.numpy())


def processed(folder: Path, image: Image.Image) -> tuple[torch.Tensor, torch.Tensor]:
    values = Qwen2VLImageProcessorPil.from_pretrained(folder)(image, return_tensors="pt")
    return values["pixel_values"], values["image_grid_thw"]


CPU = torch.device("cpu")


KINDS = {
    "reference": lambda: (Ops(CPU), Device(CPU)),
    "cpu": lambda: (CpuOps(), Device(CPU)),
    "late": lambda: (CapturableOps(CPU), LateDevice()),
}
LATE, REFERENCE, CPU_OPS = ((shape, kind) for shape, kind in zip(SHAPES, ("late", "reference", "cpu"), strict=True))
"""Each shape with one kind: all of them only in `make test-all`."""
RUNS = [LATE, REFERENCE, CPU_OPS] + [
    pytest.param((shape, kind), marks=pytest.mark.long)
    for shape in SHAPES
    for kind in ("reference", "cpu")
    if (shape, kind) not in (REFERENCE, CPU_OPS)
]


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run[0]}-{run[1]}".replace(" ", "-"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"), SHAPES[request.param[0]])
    ops, device = KINDS[request.param[1]]()
    model = load_model(folder, device=device, dtype=torch.float32, ops=ops)
    sizes = [(60, 60), (300, 40), (33, 400), (500, 500), (90, 200), (28, 28), (640, 200), (121, 77)]
    images = [picture(seed, *sizes[seed % len(sizes)]) for seed in range(16)]
    prompts = [PROMPTS[index % len(PROMPTS)] for index in range(16)]
    model = replace(model, prompts=TokenIdFormat(folder, model.architecture))
    expected = [model.prompts.decode(answer) for answer in _generate(folder, images, prompts)]
    assert len(set(expected)) > len(expected) / 2
    return Case(folder, model, images, prompts, expected)


def _generate(
    folder: Path, images: list[Image.Image], prompts: list[str], repetition_penalty: float = 1.0
) -> list[list[int]]:
    reference, words = oracle(folder), tokenizer()
    merge = reference.config.vision_config.spatial_merge_size
    answers = []
    for image, prompt in zip(images, prompts, strict=True):
        pixel_values, grid = processed(folder, image)
        text = words.apply_chat_template(
            [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]},
            ],
            tokenize=False,
            add_generation_prompt=True,
        ).replace("<|image_pad|>", "<|image_pad|>" * int(grid.prod() // merge**2))
        inputs = words(text, return_tensors="pt", add_special_tokens=False)
        token_types = (inputs["input_ids"] == reference.config.image_token_id).int()
        output = reference.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            pixel_values=pixel_values,
            image_grid_thw=grid,
            mm_token_type_ids=token_types,
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=False,
            repetition_penalty=repetition_penalty,
        )
        answer = output[0, inputs["input_ids"].shape[1] :].tolist()
        answers.append(answer[:-1] if answer[-1] == words.eos_token_id else answer)
    return answers


def run(
    case: Case,
    images: list[Image.Image],
    *,
    vit: int = 24,
    llm: int = 24,
    num_kv_tokens: int = 64_000,
    penalised: frozenset[int] = frozenset(),
) -> tuple[list[str], Meter]:
    """The answers, and what was counted. penalised: the requests with a repetition penalty."""
    limits = replace(SMALL_LIMITS, vit_batch_size=vit, llm_batch_size=llm, num_kv_tokens=num_kv_tokens)
    engine, meter = Engine(case.model, limits), Meter()
    for index, (image, prompt) in enumerate(zip(images, case.prompts, strict=True)):
        pixels = Pixels(image.height, image.width, bytearray(image.tobytes()))
        sampling = Sampling(MAX_NEW_TOKENS, repetition_penalty=PENALTY if index in penalised else 1.0)
        assert engine.submit(index, Request(pixels, prompt, sampling)) is None
    answers = answers_of(engine, meter)
    return [answers[index].text for index in range(len(images))], meter


@pytest.mark.parametrize(
    ("vit", "llm"),
    [
        (24, 24),
        pytest.param(1, 24, marks=pytest.mark.long),
        pytest.param(1, 1, marks=pytest.mark.long),
        pytest.param(3, 5, marks=pytest.mark.long),
    ],
)
def test_greedy_tokens_are_those_of_transformers_whatever_the_batches(case: Case, vit: int, llm: int) -> None:
    texts, _ = run(case, case.images, vit=vit, llm=llm)
    assert texts == case.expected


def test_a_repetition_penalty_gives_the_tokens_of_transformers_beside_sequences_without_one(case: Case) -> None:
    penalised = [0, 1, 2, 5, 7]
    images, prompts = ([each[index] for index in penalised] for each in (case.images, case.prompts))
    expected = case.expected.copy()
    for index, answer in zip(penalised, _generate(case.folder, images, prompts, PENALTY), strict=True):
        expected[index] = case.model.prompts.decode(answer)
    assert all(expected[index] != case.expected[index] for index in penalised)
    texts, _ = run(case, case.images, llm=5, penalised=frozenset(penalised))
    assert texts == expected


def test_sequences_put_back_for_lack_of_kv_blocks_end_with_the_same_tokens(case: Case) -> None:
    small = [index for index, image in enumerate(case.images) if max(image.size) < 130]
    some = replace(
        case, images=[case.images[index] for index in small], prompts=[case.prompts[index] for index in small]
    )
    grids = [case.model.preprocessor.patch_grid(image.height, image.width, None) for image in some.images]
    prompts = [
        case.model.prompts.encode(prompt, rows * columns // 4)
        for prompt, (rows, columns) in zip(some.prompts, grids, strict=True)
    ]
    blocks = max(-(-len(prompt.token_ids) // 16) for prompt in prompts)
    # Three of the longest sequences are admitted, each grows by two blocks or more, and only three blocks are left.
    texts, meter = run(some, some.images, num_kv_tokens=16 * (3 * blocks + 3))
    assert texts == [case.expected[index] for index in small]
    assert meter.preemptions > 0


def test_positions_are_those_of_get_rope_index(case: Case) -> None:
    reference = oracle(case.folder).model
    merge = reference.config.vision_config.spatial_merge_size
    for rows, columns in [(2, 2), (4, 10), (20, 6), (74, 74)]:
        prompt = case.model.prompts.encode(PROMPTS[0], rows * columns // merge**2)
        token_ids = torch.tensor([prompt.token_ids])
        expected, _ = reference.get_rope_index(
            token_ids,
            (token_ids == reference.config.image_token_id).int(),
            image_grid_thw=torch.tensor([[1, rows, columns]]),
        )
        ours = mrope_positions(len(prompt.token_ids), prompt.image_start, rows // merge, columns // merge)
        assert torch.equal(ours, expected[:, 0])


def test_embeddings_are_those_of_transformers_for_a_batch_of_different_images(case: Case) -> None:
    images = case.images[:8]
    values = [processed(case.folder, image) for image in images]
    reference = oracle(case.folder).model.visual
    with torch.inference_mode():
        grids = torch.cat([grid for _, grid in values])
        expected = reference(torch.cat([patches for patches, _ in values]), grids).pooler_output
        pixels = [(Pixels(image.height, image.width, bytearray(image.tobytes())), None) for image in images]
        patches = case.model.preprocessor.patches(pixels)
        ours = encode(case.model.vision, patches, [(int(rows), int(columns)) for _, rows, columns in grids])
    assert (ours - expected).abs().max() < 1e-4
