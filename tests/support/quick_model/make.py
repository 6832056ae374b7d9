"""Make the checkpoint next to this file: in MinerU2.5's format, small, quick, and unable to read.

`python tests/support/quick_model/make.py` trains it from scratch in minutes on two CPU cores, and checks it. It
answers every prompt in MinerU's form, going by where the ink is (model_task.py); it does not read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from model_task import (
    BLOCK_PROMPTS,
    LAYOUT_PROMPT,
    LAYOUT_TOKENS,
    MAX_IMAGE_TOKENS,
    PLACES,
    SHADES,
    answer,
    block_answer,
    block_grid,
    draw_page,
    ink_per_token,
    layout_answer,
)
from model_tokenizer import SYSTEM_PROMPT, build_tokenizer, chat
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
)
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from transformers.modeling_outputs import BaseModelOutputWithPooling

FOLDER = Path(__file__).parent / "checkpoint"
WIDTH = 64
MAX_LENGTH = 16384
PEAK_LEARNING_RATE = 3e-3
WHOLE_MODEL_STEPS = 900
LANGUAGE_STEPS = 2000
IGNORED = -100  # the label that transformers' loss ignores

PREPROCESSING = {
    "min_pixels": 56 * 56,
    "max_pixels": MAX_IMAGE_TOKENS * 28 * 28,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": OPENAI_CLIP_MEAN,
    "image_std": OPENAI_CLIP_STD,
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2VLProcessor",
}


@dataclass(frozen=True, slots=True)
class Sight:
    """What the model is shown of one image. ink: [rows, columns]. features: [rows · columns, width], from the ViT."""

    ink: NDArray[np.float64]
    features: Tensor

    def turned(self, rng: np.random.Generator) -> Sight:
        """Return the image cut in two at some row, with the halves swapped, and perhaps mirrored."""
        rows, columns = self.ink.shape
        order = np.roll(np.arange(rows), rng.integers(rows))[:: rng.choice((-1, 1))]
        across = np.arange(columns)[:: rng.choice((-1, 1))]
        tokens = (order[:, None] * columns + across).ravel()
        return Sight(self.ink[np.ix_(order, across)], self.features[torch.from_numpy(tokens)])


Lesson: TypeAlias = tuple[Sight, str]
"""What is seen, and the prompt; the answer follows from them."""


class Teacher:
    """Trains a model on lessons: an image, a prompt, the answer."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.processor = Qwen2VLImageProcessorPil(**PREPROCESSING)

    def look(self, images: Sequence[NDArray[np.uint8]]) -> list[Sight]:
        """Return these images as the model's vision tower sees them."""
        patches = self.processor(images=list(images), do_resize=False, return_tensors="pt")
        features = self.model.get_image_features(patches["pixel_values"], patches["image_grid_thw"]).pooler_output
        return [Sight(ink_per_token(image), seen) for image, seen in zip(images, features, strict=True)]

    def loss(self, lessons: Sequence[Lesson]) -> Tensor:
        """Return the mean cross-entropy of the answers' tokens."""
        rows, labels = [], []
        for sight, prompt in lessons:
            asked = chat(self.tokenizer, prompt, sight.ink.size)
            said = self.tokenizer.encode(answer(prompt, sight.ink) + self.tokenizer.eos_token)
            rows.append(torch.tensor(asked + said))
            labels.append(torch.tensor([IGNORED] * len(asked) + said))
        pad = torch.nn.utils.rnn.pad_sequence
        input_ids = pad(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        output = self.model(
            input_ids=input_ids,
            labels=pad(labels, batch_first=True, padding_value=IGNORED),
            mm_token_type_ids=(input_ids == self.model.config.image_token_id).int(),
            image_grid_thw=torch.tensor([(1, 2 * sight.ink.shape[0], 2 * sight.ink.shape[1]) for sight, _ in lessons]),
            mm_encoder_outputs={
                "image": BaseModelOutputWithPooling(pooler_output=[sight.features for sight, _ in lessons])
            },
            use_cache=False,
        )
        return output.loss

    def ask(self, image: NDArray[np.uint8], prompt: str) -> str:
        """Return the greedy answer, at most 256 tokens, including its end token."""
        patches = self.processor(images=[image], do_resize=False, return_tensors="pt")
        asked = torch.tensor([chat(self.tokenizer, prompt, ink_per_token(image).size)])
        output = self.model.generate(
            input_ids=asked,
            attention_mask=torch.ones_like(asked),
            mm_token_type_ids=(asked == self.model.config.image_token_id).int(),
            max_new_tokens=256,
            **patches,
        )
        return str(self.tokenizer.decode(output[0, asked.shape[1] :]))

    def train(self, batches: Iterator[list[Lesson]], num_steps: int) -> None:
        """Train on this many batches: AdamW, 30 steps of warm-up, linear decay to 5 % over the second half."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / 30, 1, max(0.05, 2 * (1 - step / num_steps)))
        )
        losses, began = [], time.monotonic()
        for step in range(1, num_steps + 1):
            loss = self.loss(next(batches))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if step % 100 == 0:
                seconds = time.monotonic() - began
                print(f"step {step:4d}  loss {np.mean(losses[-100:]):.4f}  {seconds:.0f} s", flush=True)


def small_blocks(teacher: Teacher, rng: np.random.Generator) -> Iterator[list[Lesson]]:
    """Yield batches of blocks of one shape, up to 400 image tokens each; the vision tower is trained on them too."""
    while True:
        rows, columns = block_grid(rng, 400)
        images = [draw_page(rng, rows, columns) for _ in range(min(16, 800 // (rows * columns)))]
        yield [(sight, str(rng.choice(BLOCK_PROMPTS))) for sight in teacher.look(images)]


def all_sizes(pages: list[Sight], blocks: list[Sight], rng: np.random.Generator) -> Iterator[list[Lesson]]:
    """Yield, alternately, two layouts and some blocks of similar size, as the vision tower saw them once for all."""
    blocks = sorted(blocks, key=lambda sight: sight.ink.size)
    while True:
        yield [(pages[i].turned(rng), LAYOUT_PROMPT) for i in rng.integers(len(pages), size=2)]
        first = int(rng.integers(len(blocks)))
        largest = blocks[first].ink.size
        batch = blocks[max(0, first + 1 - max(1, min(16, 2500 // largest))) : first + 1]
        yield [(sight.turned(rng), str(rng.choice(BLOCK_PROMPTS))) for sight in batch]


def vocabulary(rng: np.random.Generator) -> Iterator[str]:
    """Yield texts that contain every word of the prompts and answers at least twice."""
    for _ in range(2):
        yield from ("system\n" + SYSTEM_PROMPT, "user\n", "assistant\n", LAYOUT_PROMPT, *BLOCK_PROMPTS)
        yield from (block_answer(*case) for case in product(BLOCK_PROMPTS, range(len(SHADES)), range(len(PLACES))))
    for _ in range(1000):
        row = rng.uniform(0, 0.2, LAYOUT_TOKENS) * rng.choice((0, 1), LAYOUT_TOKENS)
        yield layout_answer(np.outer(row, rng.choice((0, 1), LAYOUT_TOKENS)))


def untrained_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLForConditionalGeneration:
    """Return a miniature of MinerU2.5's architecture, untrained."""
    token_id = tokenizer.convert_tokens_to_ids
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 160,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": MAX_LENGTH,
            "rms_norm_eps": 1e-6,
            # A low base: with heads this small, the usual 10⁶ would rotate columns too slowly to tell them apart.
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [2, 3, 3]},
            "initializer_range": 0.05,
            "tie_word_embeddings": True,
            "bos_token_id": token_id("<|endoftext|>"),
            "eos_token_id": token_id("<|im_end|>"),
        },
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "hidden_size": WIDTH,
            "initializer_range": 0.05,
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    return Qwen2VLForConditionalGeneration(config)


def save(model: Qwen2VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write the checkpoint. As in MinerU2.5-Pro-2605, `text_config` alone says that the embeddings are tied."""
    end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=padding, pad_token_id=padding, eos_token_id=[end, padding], do_sample=False
    )
    model.save_pretrained(FOLDER)
    tokenizer.save_pretrained(FOLDER)
    (FOLDER / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING, indent=2) + "\n")
    config = json.loads((FOLDER / "config.json").read_text())
    del config["tie_word_embeddings"]
    (FOLDER / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def check(rng: np.random.Generator) -> None:
    """Load what was written and ask it about new images. Exits the program if an answer does not end."""
    model = Qwen2VLForConditionalGeneration.from_pretrained(FOLDER).eval()
    teacher = Teacher(model, AutoTokenizer.from_pretrained(FOLDER))
    grids = [(LAYOUT_TOKENS, LAYOUT_TOKENS)] * 10 + [block_grid(rng, MAX_IMAGE_TOKENS) for _ in range(40)]
    right = {"layouts": 0, "blocks": 0}
    for number, (rows, columns) in enumerate(grids):
        prompt = LAYOUT_PROMPT if number < 10 else BLOCK_PROMPTS[number % len(BLOCK_PROMPTS)]
        image = draw_page(rng, rows, columns)
        said = teacher.ask(image, prompt)
        if not said.endswith(teacher.tokenizer.eos_token):
            raise SystemExit(f"No end to the answer about {rows} × {columns} image tokens: {said}")
        expected = answer(prompt, ink_per_token(image)) + teacher.tokenizer.eos_token
        right["layouts" if number < 10 else "blocks"] += said == expected
    print(f"exactly right: {right['layouts']} of 10 layouts, {right['blocks']} of 40 blocks; every answer ended")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    tokenizer = build_tokenizer(vocabulary(rng), MAX_LENGTH)
    model = untrained_model(tokenizer)
    teacher = Teacher(model, tokenizer)
    print(f"the whole model, on small images: {sum(p.numel() for p in model.parameters()):,} parameters")
    teacher.train(small_blocks(teacher, rng), WHOLE_MODEL_STEPS)

    print("the language model, on images of every size")
    model.model.visual.requires_grad_(False)
    pages = [teacher.look([draw_page(rng, LAYOUT_TOKENS, LAYOUT_TOKENS)])[0] for _ in range(120)]
    blocks = [teacher.look([draw_page(rng, *block_grid(rng, MAX_IMAGE_TOKENS))])[0] for _ in range(240)]
    teacher.train(all_sizes(pages, blocks, rng), LANGUAGE_STEPS)
    save(model, tokenizer)
    check(rng)


if __name__ == "__main__":
    main()
