"""Whole models on the device, compared with the reference operations in float32 and with transformers in bfloat16.

    python -m benchmarks.gpu.model_check

In float32, tiny models of the tests' shapes must generate exactly the tokens that the reference operations do, singly
and in batches, and logits within 1e-3. In bfloat16, at the family's true widths, a given answer is fed token by token
and the logits are compared with those of transformers' float32 model: their error may be at most 1.1 times that of
transformers' own bfloat16 model. Exit code 1 if a check fails. Expected on an H200: in bfloat16 45 s.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from batchocr.data import Pixels
from batchocr.engine import backend
from batchocr.engine.backend.base import PagedContext, Segments
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.prompt import PromptFormat, PromptTokens
from batchocr.engine.model.rope import mrope_positions
from batchocr.planning.families import read_architecture
from benchmarks.loading import free_memory, load, make_engine
from benchmarks.options import add_checkpoint_option, add_family_option
from benchmarks.record import Record, Row, benchmark_parser
from benchmarks.trace import Ask, Noise
from benchmarks.true_shape import USUAL, checkpoint
from tests.support.checkpoints import SHAPES, TokenIdFormat, answers_of, make_checkpoint
from tests.support.family_oracles import ORACLES
from tests.support.whole_vit import encode

QUESTION = "\nText Recognition:"

_SIZES = ((60, 60), (300, 40), (33, 400), (500, 500), (90, 200), (28, 28), (640, 200), (121, 77))
_NEW_TOKENS = 34
_MAX_LOGIT_ERROR = 1e-3
_NO_WORSE = 1.1
_AGREEMENT_MARGIN = 0.03
_TINY: Final[Mapping[str, Mapping[str, Callable[[Path], Path]]]] = {
    USUAL: {name: partial(make_checkpoint, shape=shape) for name, shape in SHAPES.items()},
    **{
        family: {name: partial(each.make, shape=shape) for name, shape in each.shapes.items()}
        for family, each in ORACLES.items()
    },
}
"""What makes the tests' checkpoints, by family and name."""


def answers(model: Model, folder: Path, *, llm_batch_size: int) -> list[str]:
    """The token ids of 24 answers about images of different sizes."""
    model = replace(model, prompts=TokenIdFormat(folder, model.architecture))
    engine = make_engine(model, llm_batch_size=llm_batch_size, max_new_tokens=_NEW_TOKENS)
    noise = Noise(1 << 22)
    for index in range(24):
        request = noise.request(Ask("text", *_SIZES[index % len(_SIZES)], _NEW_TOKENS))
        engine.submit(index, request)
    found = answers_of(engine)
    return [found[index].text for index in range(24)]


def check_tiny_model(name: str, device_name: str, folder: Path) -> Row:
    """A row: whether the backend gives the reference's tokens and logits for the tiny checkpoint in `folder`."""
    device = backend.select_device(device_name)
    ours = load(folder, device_name, "float32")
    reference = load_model(folder, device=Device(device), dtype=torch.float32, ops=Ops(device))
    wanted = answers(reference, folder, llm_batch_size=24)
    same = all(answers(ours, folder, llm_batch_size=size) == wanted for size in (1, 5, 24))
    pixels = Noise(1 << 22).pixels(500, 300)
    tokens = [int(token) for token in wanted[0].split()[:8]]
    difference = our_logits(ours, pixels, tokens) - our_logits(reference, pixels, tokens)
    error = float(difference.abs().max())
    ok = same and error <= _MAX_LOGIT_ERROR
    reason = None if ok else f"tokens {'equal' if same else 'differ'}, logits differ by {error:.1e}"
    return {"check": f"float32, {name}", "ok": ok, "logit error": error, "top-1": float(same), "reason": reason}


def check_tiny_models(device_name: str, family: str, record: Record, *, smoke: bool) -> bool:
    """Add a row for each shape of the tests' checkpoints of this family. Returns whether all are right."""
    rows = []
    for name, make in list(_TINY[family].items())[: 1 if smoke else None]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(check_tiny_model(name, device_name, make(Path(folder))))
        record.add(rows[-1])
    return all(bool(row["ok"]) for row in rows)


def check_true_widths(folder: Path, device_name: str, record: Record, *, smoke: bool) -> bool:
    """Compare our and transformers' bfloat16 logits for a given answer with float32. Returns whether ours are right."""
    noise = Noise(1 << 24)
    sizes = ((84, 112),) if smoke else ((420, 420), (1036, 1036), (196, 1512), (56, 1512))
    images = [noise.pixels(*size) for size in sizes]
    num_tokens = 6 if smoke else 64
    device = backend.select_device(device_name)
    tokens = torch.randint(0, 400, (num_tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    wanted = torch.cat(transformers_logits(folder, device, torch.float32, images, tokens))
    theirs = torch.cat(transformers_logits(folder, device, torch.bfloat16, images, tokens))
    model = load(folder, device_name, "bfloat16")
    ours = torch.cat([our_logits(model, image, tokens) for image in images])
    scale = float(wanted.square().mean().sqrt())
    errors = [float((logits - wanted).square().mean().sqrt()) / scale for logits in (ours, theirs)]
    agreements = [float((logits.argmax(-1) == wanted.argmax(-1)).float().mean()) for logits in (ours, theirs)]
    ok = errors[0] <= _NO_WORSE * errors[1] and agreements[0] >= agreements[1] - _AGREEMENT_MARGIN
    reason = None if ok else "further from float32 than transformers is in bfloat16"
    record.add(_row("bfloat16, true widths", ok, errors[0], agreements[0], reason))
    record.add(_row("transformers' own bfloat16", True, errors[1], agreements[1], None))
    return ok


@torch.inference_mode()
def our_logits(model: Model, pixels: Pixels, tokens: Sequence[int]) -> Tensor:
    """float32 [tokens, vocabulary] on the host: the logits for each position before its token is seen. The first row
    comes from prefill, the others from decode steps."""
    device, language = model.device.torch_device, model.language
    with model.device.main():
        grid = model.preprocessor.patch_grid(pixels.height, pixels.width, None)
        embeddings = encode(model.vision, model.preprocessor.patches([(pixels, None)]), [grid])
        prompt = model.prompts.encode(QUESTION, len(embeddings))
        merge_size = model.architecture.vision.merge_size
        length = len(prompt.token_ids)
        positions = mrope_positions(length, prompt.image_start, grid[0] // merge_size, grid[1] // merge_size)
        x = language.embed(torch.tensor(prompt.token_ids, device=device))
        x[prompt.image_start : prompt.image_start + len(embeddings)] = embeddings
        block_size = model.ops.kv_block_size
        num_blocks = -(-(length + len(tokens)) // block_size)
        # Block 0 is never handed out.
        tables = torch.arange(1, num_blocks + 1, dtype=torch.int32, device=device).unsqueeze(0)
        slots = block_size + torch.arange(num_blocks * block_size, device=device)
        cache = language.new_cache(num_blocks + 1)
        segments = Segments.of([length], lambda ends: ends.to(device))
        logits = [language.prefill(x, positions.to(device), slots[:length], segments, cache).float()]
        for step, token in enumerate(tokens[:-1]):
            now = length + step
            position = torch.full((3, 1), int(positions[0, -1]) + 1 + step, device=device)
            context = PagedContext(tables, torch.tensor([now + 1], dtype=torch.int32, device=device))
            newest = torch.tensor([token], device=device)
            logits.append(language.decode(newest, position, slots[now : now + 1], context, cache).float())
        return torch.cat(logits).cpu()


@torch.inference_mode()
def transformers_logits(
    folder: Path, device: torch.device, dtype: torch.dtype, images: Sequence[Pixels], tokens: Sequence[int]
) -> list[Tensor]:
    """The same from transformers' model, for each image."""
    from transformers import AutoModelForImageTextToText, Qwen2VLImageProcessorPil

    architecture = read_architecture(folder)
    usual = partial(Qwen2VLImageProcessorPil.from_pretrained, local_files_only=True)
    oracle = ORACLES.get(architecture.family)
    processor: Any = (oracle.processor if oracle else usual)(folder)
    model: Any = AutoModelForImageTextToText.from_pretrained(folder, local_files_only=True, dtype=dtype)
    model = model.to(device).eval()
    prompts = PromptFormat(folder, architecture)
    results = []
    for pixels in images:
        image = Image.frombuffer("RGB", (pixels.width, pixels.height), pixels.data, "raw", "RGB", 0, 1)
        values = processor(image, return_tensors="pt")
        num_image_tokens = int(values["image_grid_thw"].prod()) // processor.merge_size**2
        prompt: PromptTokens = prompts.encode(QUESTION, num_image_tokens)
        token_ids = torch.tensor([[*prompt.token_ids, *tokens[:-1]]], device=device)
        output = model(
            input_ids=token_ids,
            attention_mask=torch.ones_like(token_ids),
            pixel_values=values["pixel_values"].to(device, dtype),
            image_grid_thw=values["image_grid_thw"].to(device),
            mm_token_type_ids=(token_ids == model.config.image_token_id).int(),
        )
        results.append(output.logits[0, -len(tokens) :].float().cpu())
    del model
    free_memory()
    return results


def _row(name: str, ok: bool, error: float, agreement: float, reason: str | None) -> Row:
    return {"check": name, "ok": ok, "logit error": error, "top-1": agreement, "reason": reason}


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_checkpoint_option(parser)
    add_family_option(parser)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="both if not given")
    given = parser.parse_args(arguments)
    record = Record("model_check", given)
    torch.set_float32_matmul_precision("highest")
    ok = True
    if given.dtype != "float32":
        with checkpoint(given.checkpoint, smoke=given.smoke, family=given.family) as folder:
            ok = check_true_widths(folder, given.device, record, smoke=given.smoke)
    if given.dtype != "bfloat16":
        ok &= check_tiny_models(given.device, given.family, record, smoke=given.smoke)
    if not ok:
        sys.exit(1)


if __name__ == "__main__":
    main()
