"""The quick model's tokenizer: as Qwen2-VL's, with its chat template, but a vocabulary of the words it is taught."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SYSTEM_PROMPT = "You are a helpful assistant."
SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    *("<|box_start|>", "<|box_end|>", "<|ref_start|>", "<|ref_end|>"),
    *("<|rotate_up|>", "<|rotate_right|>", "<|rotate_down|>", "<|rotate_left|>"),
    *("<|txt_contd_src|>", "<|txt_contd_tgt|>"),
    *("<|class_start|>", "<|class_end|>", "<|sub_class_start|>", "<|sub_class_end|>"),
    *("<|caption_start|>", "<|caption_end|>", "<|content_start|>", "<|content_end|>"),
)
TABLE_TOKENS = ("<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>")

# Qwen2's rule, except for numbers: up to three digits with the space before them, so that a coordinate is one token.
WORDS = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Qwen2-VL's own, Apache-2.0.
CHAT_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    + SYSTEM_PROMPT
    + "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer: any text encodes, and every word found twice in the texts is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    signs = Regex("|".join(token.replace("|", r"\|") for token in (*SPECIAL_TOKENS, *TABLE_TOKENS)))
    split = pre_tokenizers.Split(signs, "removed")
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((part for text in texts for part, _ in split.pre_tokenize_str(text)), trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in TABLE_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        model_max_length=max_length,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def chat(tokenizer: PreTrainedTokenizerFast, prompt: str, num_image_tokens: int) -> list[int]:
    """Return the token ids of a chat that shows one image and gives the prompt, up to where the answer begins."""
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": content}]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    return list(tokenizer.encode(text.replace("<|image_pad|>", "<|image_pad|>" * num_image_tokens)))
