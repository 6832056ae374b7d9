"""Encodes prompts in the checkpoint's format, and decodes its tokens to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from batchocr.errors import ModelError
from batchocr.planning.architecture import Architecture, Chat, processor_template, read_json

_TEMPLATE_ERRORS = (
    *(TemplateError, TypeError, ValueError),
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError),
)
"""What a template may raise, which is a program. TypeError: one for texts alone may join our list of parts to a string.
ValueError: there are several, and none is the default."""


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt with room for its image."""

    token_ids: tuple[int, ...]
    image_start: int
    """Index of the first image token."""
    num_image_tokens: int


class PromptFormat:
    """The checkpoint's chat template and tokenizer."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        self._tokenizer = _load_tokenizer(folder)
        self._system = architecture.chat.system
        self._image_token_id = architecture.chat.image_token_id
        self._check_vocabulary(folder, architecture)
        self.stop_token_ids, self._silent_token_ids = self._read_special_tokens(folder)
        self._template_ids = lru_cache(maxsize=64)(self._apply_template)
        self._check_template(architecture.chat)  # fails now, not in the middle of a run

    def encode(self, prompt: str, num_image_tokens: int) -> PromptTokens:
        """The chat with the system prompt, if there is one, one image and this text, up to where the answer begins."""
        before, after = self._template_ids(prompt)
        image = (self._image_token_id,) * num_image_tokens
        return PromptTokens((*before, *image, *after), len(before), num_image_tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer. Special tokens are kept for the protocol to read, except begin, end and padding."""
        kept = [token_id for token_id in token_ids if token_id not in self._silent_token_ids]
        return str(self._tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _apply_template(self, prompt: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The token ids before and after the image."""
        token_ids = tuple(self._tokenizer(self._rendered(prompt), add_special_tokens=False)["input_ids"])
        if token_ids.count(self._image_token_id) != 1:
            raise ModelError("the checkpoint's chat template does not place exactly one image token for an image")
        start = token_ids.index(self._image_token_id)
        return token_ids[:start], token_ids[start + 1 :]

    def _rendered(self, prompt: str) -> str:
        chat: list[dict[str, Any]] = [{"role": "system", "content": self._system}] if self._system else []
        chat.append({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]})
        try:
            return str(self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        except _TEMPLATE_ERRORS as error:
            said = str(error) or type(error).__name__
            raise ModelError(f"the checkpoint's chat template cannot be used: {said}") from error

    def _check_template(self, chat: Chat) -> None:
        self.encode("", num_image_tokens=1)
        if chat.rendered not in (None, rendered := self._rendered(chat.example)):
            raise ModelError(
                f"the checkpoint's chat template makes {rendered!r} of a question, not {chat.rendered!r}: "
                "it is another version of the model"
            )

    def _check_vocabulary(self, folder: Path, architecture: Architecture) -> None:
        if len(self._tokenizer) > architecture.language.vocab_size:
            raise ModelError(
                f"{folder}: the tokenizer has {len(self._tokenizer)} tokens, the model only "
                f"{architecture.language.vocab_size}: they belong to different checkpoints"
            )
        # If the tokenizer's files are missing, transformers makes one up with a single token.
        is_token = 0 <= self._image_token_id < architecture.language.vocab_size
        if not is_token or self._tokenizer.convert_ids_to_tokens(self._image_token_id) is None:
            raise ModelError(
                f"{folder}: image_token_id {self._image_token_id} is not in the tokenizer: "
                "are all of the tokenizer's files there (tokenizer.json)?"
            )

    def _read_special_tokens(self, folder: Path) -> tuple[frozenset[int], frozenset[int]]:
        """The tokens that end an answer, and all that `decode` leaves out. Raises ModelError if none ends an answer."""
        sources: list[dict[str, Any]] = [read_json(folder, "config.json")]
        sources += [source["text_config"] for source in sources if isinstance(source.get("text_config"), dict)]
        if (folder / "generation_config.json").exists():
            sources.insert(0, read_json(folder, "generation_config.json"))
        stop = next((ids for source in sources if (ids := _ids(folder, source.get("eos_token_id")))), frozenset())
        stop = stop or _ids(folder, self._tokenizer.eos_token_id)
        if not stop:
            raise ModelError(f"{folder} names no end token (eos_token_id)")
        fields = ("bos_token_id", "eos_token_id", "pad_token_id")
        named = [_ids(folder, source.get(field)) for source in sources for field in fields]
        named += [_ids(folder, getattr(self._tokenizer, field)) for field in fields]
        return stop, stop.union(*named)


def _ids(folder: Path, value: object) -> frozenset[int]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(each) is int for each in values):
        raise ModelError(
            f"{folder}: bos_token_id, eos_token_id or pad_token_id of config.json or generation_config.json is "
            f"{str(value)[:80]}, which is neither a number nor a list of numbers"
        )
    return frozenset(values)


def _load_tokenizer(folder: Path) -> Any:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, StrictDataclassError) as error:
        raise ModelError(f"{folder} holds no tokenizer that transformers can load: {error}") from error
    tokenizer.chat_template = processor_template(folder) or tokenizer.chat_template
    if tokenizer.chat_template is None:
        raise ModelError(f"{folder} holds no chat template (chat_template.jinja or tokenizer_config.json)")
    return tokenizer
