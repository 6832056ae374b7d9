"""The engine reads tiny checkpoints of each family with the values and tokens of transformers' own model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.kernels import activation, norm, paged_attention, rotary, sampling, vocabulary_piece
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.engine.model.rope import mrope_positions
from batchocr.planning.families import read_architecture
from tests.support.checkpoints import SMALL_LIMITS, TokenIdFormat, answers_of
from tests.support.family_oracles import ORACLES, FamilyOracle
from tests.support.jobs import FULL
from tests.support.kernel_compilation import kernel_device
from tests.support.late_device import CapturableOps, LateDevice
from tests.support.whole_vit import encode

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
KINDS = {
    "reference": lambda: (Ops(CPU), Device(CPU)),
    "cpu": lambda: (CpuOps(), Device(CPU)),
    "late": lambda: (CapturableOps(CPU), LateDevice()),
}
SIZES = [(60, 60), (300, 40), (33, 400), (500, 300), (90, 200), (20, 30), (340, 200), (121, 77)]
NUM_REQUESTS = 50 if FULL else 6
RUNS = [
    pytest.param((family, shape, kind), marks=() if at == other else pytest.mark.long)
    for family, oracle in ORACLES.items()
    for at, shape in enumerate(oracle.shapes)
    for other, kind in enumerate(KINDS)
]


@dataclass(frozen=True)
class Case:
    """A checkpoint and requests."""

    family: FamilyOracle
    folder: Path
    model: Model
    images: list[Image.Image]
    prompts: list[str]
    max_new_tokens: int = 34
    min_pixels: int | None = None
    """In place of the checkpoint's."""


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: "-".join(run).replace(" ", "-"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, shape, kind = request.param
    family = ORACLES[name]
    folder = family.make(tmp_path_factory.mktemp(name), family.shapes[shape])
    ops, device = KINDS[kind]()
    model = load_model(folder, device=device, dtype=torch.float32, ops=ops)
    model = replace(model, prompts=TokenIdFormat(folder, model.architecture))
    images = [picture(seed, *SIZES[seed % len(SIZES)]) for seed in range(NUM_REQUESTS)]
    prompts = [family.prompts[index % len(family.prompts)] for index in range(NUM_REQUESTS)]
    return Case(family, folder, model, images, prompts)


@pytest.fixture
def kernels() -> Iterator[CudaOps]:
    """The operations of a GPU with our Triton kernels, which are interpreted; attention over prompts is the
    reference's."""
    reference = Ops(CPU)
    with kernel_device(activation, norm, paged_attention, rotary, sampling, vocabulary_piece):
        yield CudaOps(
            attention=reference.attention,
            paged_attention=paged_attention.paged_attention,
            rotary=rotary.rotary_,
            rotary_store=rotary.rotary_store_,
            rms_norm=norm.rms_norm,
            add_layer_norm=norm.add_layer_norm_,
            vit_gelu=activation.quick_gelu_bias_,
            silu_mul=activation.silu_mul,
            sample=sampling.sample,
            patches=reference.patches,
        )


def picture(seed: int, width: int, height: int) -> Image.Image:
    noise = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.manual_seed(seed))
    return Image.fromarray(noise.numpy())


def processed(case: Case, image: Image.Image) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixel values and grid, as transformers makes them."""
    processor = case.family.processor(case.folder)
    if case.min_pixels:
        processor.size = {"shortest_edge": case.min_pixels, "longest_edge": case.model.architecture.images.max_pixels}
    made = processor(images=[image], return_tensors="pt")
    return made["pixel_values"], made["image_grid_thw"]


def generated(case: Case, repetition_penalty: float) -> list[list[int]]:
    """What transformers answers to each request alone, up to where two tokens are as likely for it: there the order of
    a sum decides."""
    reference, words = case.family.oracle(case.folder), AutoTokenizer.from_pretrained(case.folder)
    image_token = words.convert_ids_to_tokens(reference.config.image_token_id)
    stops = case.model.prompts.stop_token_ids
    answers = []
    for image, prompt in zip(case.images, case.prompts, strict=True):
        pixel_values, grid = processed(case, image)
        system = case.model.architecture.chat.system
        chat: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        chat.append({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]})
        text = words.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        token_ids = words(text.replace(image_token, image_token * int(grid.prod() // 4)), add_special_tokens=False)[
            "input_ids"
        ]
        inputs = torch.tensor([token_ids])
        output = reference.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            pixel_values=pixel_values,
            image_grid_thw=grid,
            mm_token_type_ids=(inputs == reference.config.image_token_id).int(),
            max_new_tokens=case.max_new_tokens,
            do_sample=False,
            repetition_penalty=repetition_penalty,
            output_scores=True,
            return_dict_in_generate=True,
        )
        answer = output.sequences[0, len(token_ids) :].tolist()
        first, second = torch.cat(output.scores).topk(2).values.unbind(1)
        ties = (first - second < 1e-4).nonzero().flatten().tolist()
        answer = answer[: ties[0]] if ties else answer
        answers.append(answer[:-1] if answer and answer[-1] in stops else answer)
    return answers


def answered(case: Case, repetition_penalty: float) -> list[str]:
    """What the engine answers to all requests together."""
    engine = Engine(case.model, replace(SMALL_LIMITS, num_kv_tokens=64_000))
    sampling = Sampling(case.max_new_tokens, repetition_penalty=repetition_penalty)
    for index, (image, prompt) in enumerate(zip(case.images, case.prompts, strict=True)):
        pixels = Pixels(image.height, image.width, bytearray(image.tobytes()))
        assert engine.submit(index, Request(pixels, prompt, sampling)) is None
    answers = answers_of(engine)
    return [answers[index].text for index in range(len(case.images))]


def test_greedy_tokens_are_those_of_transformers(case: Case) -> None:
    for repetition_penalty in case.family.repetition_penalties:
        expected = generated(case, repetition_penalty)
        ours = [[int(token) for token in answer.split()] for answer in answered(case, repetition_penalty)]
        assert [answer[: len(each)] for answer, each in zip(ours, expected, strict=True)] == expected
        assert len({tuple(each) for each in expected}) > NUM_REQUESTS / 2
        assert sum(map(len, expected)) > 0.95 * sum(map(len, ours))


@pytest.mark.parametrize("name", ORACLES)
def test_triton_kernels_answer_with_the_tokens_of_transformers(name: str, kernels: CudaOps, tmp_path: Path) -> None:
    family = ORACLES[name]
    folder = family.make(tmp_path, None)
    if read_architecture(folder).vision.activation == "gelu_tanh":
        kernels = replace(kernels, vit_gelu=activation.gelu_tanh_bias_)
    model = load_model(folder, device=Device(CPU), dtype=torch.float32, ops=kernels)
    model = replace(model, prompts=TokenIdFormat(folder, model.architecture))
    limits = replace(model.architecture.images, min_pixels=12_544)
    model = replace(model, preprocessor=Preprocessor(model.architecture.vision, limits, kernels))
    images = [picture(0, 60, 60), picture(1, 90, 40)]
    case = Case(family, folder, model, images, list(family.prompts[:2]), 4, limits.min_pixels)
    penalty = family.repetition_penalties[-1]
    assert answered(case, penalty) == [" ".join(map(str, each)) for each in generated(case, penalty)]


def test_positions_are_those_of_get_rope_index(case: Case) -> None:
    reference = case.family.oracle(case.folder).model
    for rows, columns in [(2, 2), (4, 10), (20, 6)]:
        prompt = case.model.prompts.encode(case.prompts[0], rows * columns // 4)
        token_ids = torch.tensor([prompt.token_ids])
        expected, _ = reference.get_rope_index(
            token_ids,
            mm_token_type_ids=(token_ids == case.model.architecture.chat.image_token_id).int(),
            image_grid_thw=torch.tensor([[1, rows, columns]]),
        )
        ours = mrope_positions(len(prompt.token_ids), prompt.image_start, rows // 2, columns // 2)
        assert torch.equal(ours, expected[:, 0])


def test_embeddings_are_those_of_transformers_for_a_batch_of_different_images(case: Case) -> None:
    values = [processed(case, image) for image in case.images]
    reference = case.family.oracle(case.folder)
    with torch.inference_mode():
        grids = torch.cat([grid for _, grid in values])
        expected = case.family.embeddings(reference, torch.cat([patches for patches, _ in values]), grids)
        pixels = [(Pixels(image.height, image.width, bytearray(image.tobytes())), None) for image in case.images]
        patches = case.model.preprocessor.patches(pixels)
        ours = encode(case.model.vision, patches, [(int(rows), int(columns)) for _, rows, columns in grids])
    assert (ours - expected).abs().max() < 1e-4
