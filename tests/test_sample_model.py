"""The sample model: loadable as MinerU2.5 is, and its answers have MinerU's form."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS, MinerUClientHelper
from PIL import Image, ImageOps
from transformers import AutoConfig, AutoTokenizer, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

Ask: TypeAlias = Callable[[Image.Image, str], str]
LAYOUT = DEFAULT_PROMPTS["[layout]"]


@pytest.fixture(scope="module")
def folder(sample_data: Path) -> Path:
    return sample_data / "model"


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.fixture(scope="module")
def ask(folder: Path, tokenizer: Any) -> Ask:
    """Ask the model about an image; the answer comes with its end token, or is cut after 150 tokens."""
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder, local_files_only=True).eval()
    processor = Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)

    def answer(image: Image.Image, prompt: str) -> str:
        patches = processor(images=[image], return_tensors="pt")
        num_image_tokens = int(patches["image_grid_thw"].prod()) // 4
        text = chat(tokenizer, prompt).replace("<|image_pad|>", "<|image_pad|>" * num_image_tokens)
        asked = torch.tensor([tokenizer.encode(text)])
        output = model.generate(
            input_ids=asked,
            attention_mask=torch.ones_like(asked),
            mm_token_type_ids=(asked == model.config.image_token_id).int(),
            max_new_tokens=150,
            **patches,
        )
        return str(tokenizer.decode(output[0, asked.shape[1] :]))

    return answer


@pytest.fixture(scope="module")
def pages(sample_data: Path) -> list[Image.Image]:
    """Two pages as the layout prompt sees them: a letter, and the same upside down."""
    with Image.open(sample_data / "documents" / "scanned-letter.png") as letter:
        page = letter.convert("RGB").resize((1036, 1036), Image.Resampling.BICUBIC)
    return [page, ImageOps.flip(page)]


def chat(tokenizer: Any, prompt: str) -> str:
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    return str(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
    )


def test_the_checkpoint_is_small_enough_for_the_repository(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5_000_000


def test_the_config_has_the_layout_of_the_newest_mineru_models(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder, local_files_only=True)

    assert config.architectures == ["Qwen2VLForConditionalGeneration"]
    assert '"text_config"' in (folder / "config.json").read_text()
    assert config.text_config.tie_word_embeddings


def test_the_chat_template_is_that_of_qwen2_vl(tokenizer: Any) -> None:
    assert chat(tokenizer, LAYOUT) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>\nLayout Detection:<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "text", ["naïve Ωmega 漢字 🙂", "a\n\nb\t c  <fcel>x<nl>", "<|box_start|>012 345 678 999<|box_end|>"]
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_layout_of_a_page_has_blocks_and_an_end(ask: Ask, pages: list[Image.Image]) -> None:
    answer = ask(pages[0], LAYOUT)

    assert answer.endswith("<|im_end|>")
    assert len(parse_layout(answer)) >= 3


def test_different_pages_have_different_layouts(ask: Ask, pages: list[Image.Image]) -> None:
    assert ask(pages[0], LAYOUT) != ask(pages[1], LAYOUT)


@pytest.mark.parametrize(
    ("block_type", "form"),
    [
        ("[default]", r"The \w+ is \w+\."),
        ("table", r"<fcel>ink<fcel>\w+<nl><fcel>place<fcel>\w+<nl>"),
        ("equation", r"\\frac\{\w\}\{\w\}"),
        ("image", r"<\|class_start\|>natural_image<\|class_end\|><\|caption_start\|>a \w+ \w+<\|caption_end\|>"),
    ],
)
@pytest.mark.parametrize("box", [(0, 0, 1036, 1036), (100, 300, 900, 420), (0, 0, 40, 30)])
def test_a_block_of_any_size_is_answered_in_the_form_of_its_prompt(
    ask: Ask, pages: list[Image.Image], block_type: str, form: str, box: tuple[int, int, int, int]
) -> None:
    answer = ask(pages[0].crop(box), DEFAULT_PROMPTS[block_type])

    assert re.fullmatch(form + re.escape("<|im_end|>"), answer)


def parse_layout(answer: str) -> list[Any]:
    """The blocks that MinerU's client finds in a layout."""
    helper = MinerUClientHelper(
        backend="transformers",
        prompts=DEFAULT_PROMPTS,
        sampling_params=DEFAULT_SAMPLING_PARAMS,
        layout_image_size=(1036, 1036),
        min_image_edge=28,
        max_image_edge_ratio=50,
        simple_post_process=False,
        handle_equation_block=False,
        abandon_list=False,
        abandon_paratext=False,
        image_analysis=False,
        debug=False,
    )
    return list(helper.parse_layout_output(answer))
