"""The engine reads tiny GLM-OCR checkpoints with the values and tokens of transformers' own model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.backend.cpu import CpuOps
from batchocr.engine.backend.cuda import CudaOps
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.kernels import activation, norm, paged_attention, rotary, sampling, vocabulary_piece
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.rope import mrope_positions
from tests.support.checkpoints import SMALL_LIMITS, TokenIdFormat, answers_of
from tests.support.glm_checkpoints import GLM_SHAPES, IMAGE, glm_oracle, glm_tokenizer, make_glm_checkpoint
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
PROMPTS = ["Text Recognition:", "Table Recognition:", "Formula Recognition:"]
SIZES = [(60, 60), (300, 40), (33, 400), (500, 300), (90, 200), (20, 30), (340, 200), (121, 77)]
NUM_REQUESTS = 50 if FULL else 6
RUNS = [
    pytest.param((shape, kind), marks=() if at == other else pytest.mark.long)
    for at, shape in enumerate(GLM_SHAPES)
    for other, kind in enumerate(KINDS)
]


@dataclass(frozen=True)
class Case:
    """A checkpoint and requests."""

    folder: Path
    model: Model
    images: list[Image.Image]
    prompts: list[str]
    max_new_tokens: int = 34


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run[0]}-{run[1]}".replace(" ", "-"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = make_glm_checkpoint(tmp_path_factory.mktemp("glm"), GLM_SHAPES[request.param[0]])
    ops, device = KINDS[request.param[1]]()
    model = load_model(folder, device=device, dtype=torch.float32, ops=ops)
    model = replace(model, prompts=TokenIdFormat(folder, model.architecture))
    images = [picture(seed, *SIZES[seed % len(SIZES)]) for seed in range(NUM_REQUESTS)]
    return Case(folder, model, images, [PROMPTS[index % len(PROMPTS)] for index in range(NUM_REQUESTS)])


@pytest.fixture
def kernels() -> Iterator[Ops]:
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
            quick_gelu=activation.quick_gelu_bias_,
            silu_mul=activation.silu_mul,
            sample=sampling.sample,
            patches=reference.patches,
        )


def picture(seed: int, width: int, height: int) -> Image.Image:
    noise = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.manual_seed(seed))
    return Image.fromarray(noise.numpy())


def processed(folder: Path, image: Image.Image) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixel values and grid, as transformers makes them."""
    made = Glm46VImageProcessorPil.from_pretrained(folder, local_files_only=True)(images=[image], return_tensors="pt")
    return made["pixel_values"], made["image_grid_thw"]


def generated(case: Case, repetition_penalty: float) -> list[list[int]]:
    """What transformers answers to each request alone."""
    reference, words = glm_oracle(case.folder), glm_tokenizer()
    stops = set(reference.generation_config.eos_token_id)
    answers = []
    for image, prompt in zip(case.images, case.prompts, strict=True):
        pixel_values, grid = processed(case.folder, image)
        chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
        text = words.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        token_ids = words(text.replace(IMAGE, IMAGE * int(grid.prod() // 4)), add_special_tokens=False)["input_ids"]
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
        )
        answer = output[0, len(token_ids) :].tolist()
        answers.append(answer[:-1] if answer[-1] in stops else answer)
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


@pytest.mark.parametrize("repetition_penalty", [1.0, 1.1])
def test_greedy_tokens_are_those_of_transformers(case: Case, repetition_penalty: float) -> None:
    expected = generated(case, repetition_penalty)
    assert answered(case, repetition_penalty) == [" ".join(map(str, each)) for each in expected]
    assert len({tuple(each) for each in expected}) > NUM_REQUESTS / 2


def test_triton_kernels_answer_with_the_tokens_of_transformers(kernels: Ops, tmp_path: Path) -> None:
    folder = make_glm_checkpoint(tmp_path)
    model = load_model(folder, device=Device(CPU), dtype=torch.float32, ops=kernels)
    model = replace(model, prompts=TokenIdFormat(folder, model.architecture))
    case = Case(folder, model, [picture(0, 60, 60), picture(1, 90, 40)], PROMPTS[:2], 8)
    assert answered(case, 1.1) == [" ".join(map(str, each)) for each in generated(case, 1.1)]


def test_positions_are_those_of_get_rope_index(case: Case) -> None:
    reference = glm_oracle(case.folder).model
    for rows, columns in [(2, 2), (4, 10), (20, 6)]:
        prompt = case.model.prompts.encode(PROMPTS[0], rows * columns // 4)
        token_ids = torch.tensor([prompt.token_ids])
        expected, _ = reference.get_rope_index(
            token_ids,
            mm_token_type_ids=(token_ids == case.model.architecture.chat.image_token_id).int(),
            image_grid_thw=torch.tensor([[1, rows, columns]]),
        )
        ours = mrope_positions(len(prompt.token_ids), prompt.image_start, rows // 2, columns // 2)
        assert torch.equal(ours, expected[:, 0])


def test_embeddings_are_those_of_transformers_for_a_batch_of_different_images(case: Case) -> None:
    values = [processed(case.folder, image) for image in case.images]
    reference = glm_oracle(case.folder).model.visual
    with torch.inference_mode():
        grids = torch.cat([grid for _, grid in values])
        expected = reference(torch.cat([patches for patches, _ in values]), grids).pooler_output
        pixels = [(Pixels(image.height, image.width, bytearray(image.tobytes())), None) for image in case.images]
        patches = case.model.preprocessor.patches(pixels)
        ours = encode(case.model.vision, patches, [(int(rows), int(columns)) for _, rows, columns in grids])
    assert (ours - expected).abs().max() < 1e-4
