"""The sample model's tokens: bytes, MinerU's special tokens, and what is better said in one token than in many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from sample_data.training.formula import COMMANDS
from sample_data.training.table import OTSL_TOKENS
from sample_data.training.truth import BlockType

SYSTEM_PROMPT = "You are a helpful assistant."
LAYOUT_PROMPT = "\nLayout Detection:"
TEXT_PROMPT = "\nText Recognition:"
TABLE_PROMPT = "\nTable Recognition:"
FORMULA_PROMPT = "\nFormula Recognition:"
PROMPTS = (LAYOUT_PROMPT, TEXT_PROMPT, TABLE_PROMPT, FORMULA_PROMPT, "\nImage Analysis:")
END, PADDING, IMAGE = "<|im_end|>", "<|endoftext|>", "<|image_pad|>"
MAX_LENGTH = 16384
NUMBERS = tuple(f"{number:03d}" for number in range(1000))
"""A layout's edges, one token each, the last of all: so near values are nearly right, unlike with digits."""

SPECIAL_TOKENS = (
    *(PADDING, "<|im_start|>", END),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", IMAGE, "<|video_pad|>"),
    *("<|box_start|>", "<|box_end|>", "<|ref_start|>", "<|ref_end|>"),
    *("<|rotate_up|>", "<|rotate_right|>", "<|rotate_down|>", "<|rotate_left|>"),
    *("<|txt_contd_src|>", "<|txt_contd_tgt|>"),
)
_CHAT = ("system\n" + SYSTEM_PROMPT, "user\n", "assistant\n", *PROMPTS)
_LETTERS = "’“”‘–—…•−×±·°é§£€†"

# Qwen2-VL's own template, Apache-2.0, for one image and text.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    + SYSTEM_PROMPT
    + "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Vocabulary:
    """Tokens and their ids."""

    def __init__(self) -> None:
        self._bytes: dict[int, str] = bytes_to_unicode()
        self._merges = _merges([self._spelt(letter) for letter in _LETTERS])
        self._plain = (*get_args(BlockType), *OTSL_TOKENS, *COMMANDS, *_CHAT)
        merged = (left + right for left, right in self._merges)
        self._tokens = (*self._bytes.values(), *merged, *SPECIAL_TOKENS, *self._plain, *NUMBERS)
        self.first_number = len(self._tokens) - len(NUMBERS)
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        assert len(self._ids) == len(self._tokens), "a token stands twice"
        characters = {letter: self._ids[self._spelt(letter)] for letter in (*map(chr, range(128)), *_LETTERS)}
        self._ids |= characters
        self.end, self.padding, self.image = (self._ids[token] for token in (END, PADDING, IMAGE))

    def __len__(self) -> int:
        return len(self._tokens)

    def _spelt(self, letter: str) -> str:
        """Return a character's bytes as byte-level BPE writes them, one sign per byte."""
        return "".join(self._bytes[byte] for byte in letter.encode())

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens, which include all characters used on pages. Raises KeyError for anything else."""
        return [self._ids[token] for token in tokens]

    def text(self, ids: Iterable[int]) -> str:
        """Return the text of these ids, as the shipped tokenizer would."""
        byte_of = {sign: byte for byte, sign in self._bytes.items()}
        num_spelt = len(self._bytes) + len(self._merges)
        parts = (
            bytes(byte_of[sign] for sign in self._tokens[number])
            if number < num_spelt
            else self._tokens[number].encode()
            for number in ids
        )
        return b"".join(parts).decode(errors="replace")

    def chat(self, prompt: str) -> tuple[list[int], list[int]]:
        """Return the ids before the image and after it, up to where the answer begins."""
        before = ("<|im_start|>", _CHAT[0], END, "\n", "<|im_start|>", "user\n", "<|vision_start|>")
        after = ("<|vision_end|>", prompt, END, "\n", "<|im_start|>", "assistant\n")
        return self.ids(before), self.ids(after)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer to ship: byte-level, so that any text survives it."""
        num_spelt = len(self._bytes) + len(self._merges)
        spelt = {token: number for number, token in enumerate(self._tokens[:num_spelt])}
        tokenizer = Tokenizer(models.BPE(vocab=spelt, merges=self._merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
        tokenizer.add_tokens([AddedToken(token, normalized=False) for token in (*self._plain, *NUMBERS)])
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            eos_token=END,
            pad_token=PADDING,
            padding_side="left",
            model_max_length=MAX_LENGTH,
            chat_template=CHAT_TEMPLATE,
            clean_up_tokenization_spaces=False,
        )


def _merges(words: Iterable[str]) -> list[tuple[str, str]]:
    """Return the BPE merges that make each of the words one token."""
    found: dict[tuple[str, str], None] = {}
    for word in words:
        for length in range(1, len(word)):
            found[word[:length], word[length]] = None
    return list(found)
