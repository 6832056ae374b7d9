"""What a checkpoint may look like, and the error message that says what is wrong with one."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from huggingface_hub.errors import HTTPError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import ProcessorMixin, Qwen2VLImageProcessorPil

from batchocr.config import Config
from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine.backend.base import Affine, Linear
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import load_model
from batchocr.engine.model.language import LanguageModel
from batchocr.engine.model.prompt import PromptFormat
from batchocr.engine.model.weights import WeightReader
from batchocr.engine.start import find_device, load_engine
from batchocr.errors import ModelError
from batchocr.planning.architecture import Architecture
from batchocr.planning.checkpoint_files import find_checkpoint, fingerprints, stored_dtype, weight_files
from batchocr.planning.detector import find_detector
from batchocr.planning.dtype import VALUE_BYTES
from batchocr.planning.families import read_architecture
from batchocr.planning.limits import engine_limits
from batchocr.processes.engine_messages import LoadModel, UseDevice
from tests.support.checkpoints import SHAPES, Shape, answers_of, make_checkpoint, oracle
from tests.support.family_oracles import ORACLES
from tests.support.paddle_checkpoints import PADDLE_SHAPES, make_paddle_checkpoint

Damage: TypeAlias = Callable[[Path], object]
EMBEDDINGS = "model.embed_tokens.weight"
NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of a sound checkpoint, to be changed."""
    return Path(shutil.copytree(sound, tmp_path / "checkpoint"))


def load(model: Path | str) -> Engine:
    """The checkpoint as a run loads it."""
    folder = find_checkpoint(str(model), None)
    found = find_device(UseDevice("cpu", "auto"))
    limits = engine_limits(
        Config(max_new_tokens=64),
        read_architecture(folder),
        on_gpu=False,
        memory_bytes=found.memory_bytes,
        value_bytes=VALUE_BYTES["float32"],
    )
    stored_dtype(folder)
    return load_engine(found, LoadModel(str(folder), "float32", "auto", limits))[0]


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def setter(file: str, *objects: str) -> Callable[..., Damage]:
    """Sets fields of a JSON file, or of an object in it."""
    return lambda **fields: (
        lambda folder: change_json(
            folder / file, lambda values: reduce(dict.__getitem__, objects, values).update(fields)
        )
    )


config, preprocessor = setter("config.json"), setter("preprocessor_config.json")
text_config, vision_config = setter("config.json", "text_config"), setter("config.json", "vision_config")
rope = setter("config.json", "text_config", "rope_parameters")


def both(first: Damage, second: Damage) -> Damage:
    return lambda folder: (first(folder), second(folder))


def without(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def with_text(name: str, text: str) -> Damage:
    return lambda folder: (folder / name).write_text(text)


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def with_norm(change: Callable[[Tensor], dict[str, Tensor]]) -> Damage:
    """Replace one tensor of the weights by what the change returns."""

    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        save_file(tensors | change(tensors.pop(NORM)), folder / "model.safetensors")

    return damage


def shard(folder: Path) -> None:
    """Split the weights across two files, as in large checkpoints."""
    tensors = load_file(folder / "model.safetensors")
    weight_map = {
        name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(tensors))
    }
    for file_name in set(weight_map.values()):
        part = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file_name}
        save_file(part, folder / file_name, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def lose_a_shard(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


NOT_TIED = text_config(tie_word_embeddings=False)
DAMAGES: dict[str, tuple[Damage, str]] = {
    "another architecture": (
        config(model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"]),
        "architecture 'qwen2_5_vl'. batchocr runs Qwen2-VL",
    ),
    "no config.json": (without("config.json"), "holds no config.json"),
    "broken JSON": (with_text("config.json", '{"model_type": "qwen2_vl",'), "config.json cannot be read"),
    "JSON that is no object": (with_text("config.json", "[]"), "config.json should hold a JSON object"),
    "no vision_config": (
        lambda folder: change_json(folder / "config.json", lambda values: values.pop("vision_config")),
        "lacks the field 'vision_config'",
    ),
    "a number that is none": (text_config(hidden_size="wide"), "config.json holds a value that does not fit"),
    "a list where fields should be": (config(text_config=["hidden_size"]), "config.json holds a value that does not"),
    "no heads": (text_config(num_attention_heads=0), "num_attention_heads"),
    "no preprocessor_config.json": (without("preprocessor_config.json"), "holds no preprocessor_config.json"),
    "a preprocessor of another model": (
        preprocessor(patch_size=16),
        "patch_size is 16 in the preprocessor, 14 in the model",
    ),
    "no tokenizer": (
        without("tokenizer.json", "tokenizer_config.json"),
        "is not in the tokenizer: are all of the tokenizer's files there",
    ),
    "a broken tokenizer": (with_text("tokenizer.json", "{"), "holds no tokenizer that transformers can load"),
    "a tokenizer nested beyond reading": (
        with_text("tokenizer_config.json", "[" * 100_000),
        "holds no tokenizer that transformers can load",
    ),
    "no chat template": (without("chat_template.jinja"), "holds no chat template"),
    "a broken chat template": (with_text("chat_template.jinja", "{% if %}"), "chat template cannot be used"),
    "a chat template without images": (
        with_text("chat_template.jinja", "{{ messages[1].role }}"),
        "chat template does not place exactly one image token",
    ),
    "no weights": (without("model.safetensors"), "holds no model.safetensors"),
    "weights cut short": (cut_short, "model.safetensors is damaged or cut short"),
    "empty weights": (with_text("model.safetensors", ""), "model.safetensors is damaged or cut short"),
    "a tensor of a wrong shape": (
        with_norm(lambda norm: {NORM: norm[:-1].clone()}),
        f"tensor '{NORM}' has the shape [63], but config.json asks for [64]",
    ),
    "a missing tensor": (with_norm(lambda _: {}), "holds no tensor 'language_model.norm.weight'"),
    "a missing shard": (lose_a_shard, "model-00002-of-00002.safetensors is missing"),
    "an index with a file elsewhere": (
        both(
            without("model.safetensors"),
            with_text("model.safetensors.index.json", '{"weight_map": {"a": "../model.safetensors"}}'),
        ),
        "names ../model.safetensors, which is not in this folder",
    ),
    "an end token that is a list in a list": (
        with_text("generation_config.json", '{"eos_token_id": [[1]]}'),
        "is [[1]], which is neither a number nor a list of numbers",
    ),
    "an end token that is a word": (
        with_text("generation_config.json", '{"eos_token_id": "x"}'),
        "is x, which is neither a number nor a list of numbers",
    ),
    "an index without files": (
        both(without("model.safetensors"), with_text("model.safetensors.index.json", "{}")),
        "index.json has no weight_map",
    ),
    "a tensor of bytes": (
        with_norm(lambda norm: {NORM: norm.to(torch.int8)}),
        f"tensor '{NORM}' is stored as torch.int8",
    ),
    "quantised weights": (config(quantization_config={"quant_method": "compressed-tensors"}), "is quantised"),
    "a quantised language model": (text_config(quantization_config={"quant_method": "fp8"}), "is quantised"),
    "a quantised vision model": (vision_config(quantization_config={"quant_method": "fp8"}), "is quantised"),
    "another activation": (text_config(hidden_act="gelu"), "language model's hidden_act is 'gelu'"),
    "another activation for images": (vision_config(hidden_act="silu"), "vision model's hidden_act is 'silu'"),
    "images that keep their size": (preprocessor(do_resize=False), "sets do_resize to false"),
    "images that keep their values": (preprocessor(do_rescale=False), "sets do_rescale to false"),
    "images that are not normalised": (preprocessor(do_normalize=False), "sets do_normalize to false"),
    "a processor_config.json without image limits": (
        both(without("preprocessor_config.json"), with_text("processor_config.json", "{}")),
        "holds no preprocessor_config.json",
    ),
    "a chat template for texts alone": (
        with_text("chat_template.jinja", "{{ messages[1].role + messages[1].content }}"),
        "chat template cannot be used: can only concatenate str",
    ),
    "several chat templates, none of them the default": (
        with_text("chat_template.json", json.dumps({"chat_template": {"one": "1", "two": "2"}})),
        "chat template cannot be used: This model has multiple chat templates",
    ),
    "mrope_section that does not fit": (
        rope(mrope_section=[2, 2, 2]),
        "mrope_section [2, 2, 2] sums to 6, but half of head_dim 16 is 8",
    ),
    "mrope_section of two": (rope(mrope_section=[4, 4]), "config.json holds a value that does not fit"),
    "rope scaling": (rope(rope_type="yarn"), "rotary positions of type 'yarn'"),
    "a sliding window": (text_config(use_sliding_window=True), "sliding-window attention"),
    "untied without lm_head": (both(config(tie_word_embeddings=False), NOT_TIED), "no lm_head.weight"),
    "a tokenizer larger than the vocabulary": (
        lambda folder: change_json(
            folder / "tokenizer.json",
            lambda values: values["added_tokens"].append(values["added_tokens"][0] | {"id": 262, "content": "<more>"}),
        ),
        "the tokenizer has 263 tokens, the model only 262",
    ),
    "an image token outside the vocabulary": (config(image_token_id=262), "image_token_id 262 is not in the tokenizer"),
    "an image token below zero": (config(image_token_id=-1), "image_token_id -1 is not in the tokenizer"),
    "an image token beyond measure": (config(image_token_id=10**30), "0 is not in the tokenizer"),
    "a number without end": (text_config(hidden_size=math.inf), "config.json holds a value that does not fit"),
    "a limit without end": (preprocessor(max_pixels=math.inf), "the preprocessor holds a value that does not fit"),
    "fewer layers than none": (text_config(num_hidden_layers=-1), "num_hidden_layers and the vision depth must be"),
    "no room for a token": (text_config(max_position_embeddings=0), "max_position_embeddings must be positive"),
    "JSON too deep to be read": (
        with_text("config.json", "[" * 100_000),
        "config.json cannot be read: maximum recursion",
    ),
    "a pipe for a config": (
        both(without("config.json"), lambda folder: os.mkfifo(folder / "config.json")),
        "device",
    ),
    "a chat template that counts for ever": (
        with_text("chat_template.jinja", "{% for i in range(10**10) %}{% endfor %}x"),
        "chat template cannot be used: Range too big",
    ),
    "a chat template larger than the memory": (
        with_text("chat_template.jinja", "{{ 'x' * 10**15 }}"),
        "chat template cannot be used: MemoryError",
    ),
    "pages enlarged beyond measure": (
        preprocessor(size={"shortest_edge": 10**12, "longest_edge": 10**12}),
        "would enlarge every image to 1,000,000,000,000 px",
    ),
    "a tokenizer that transformers' own checks refuse": (
        text_config(layer_types=["nonsense"]),
        "holds no tokenizer that transformers can load",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_named(folder: Path, name: str) -> None:
    damage, sentence = DAMAGES[name]
    damage(folder)
    with pytest.raises(ModelError) as refusal:
        load(folder)
    assert sentence in str(refusal.value)
    assert refusal.value.exit_code == 5


@pytest.fixture(scope="module")
def sound_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound checkpoint of each family that is read with a detector."""
    return {name: oracle.make(tmp_path_factory.mktemp(name), None) for name, oracle in ORACLES.items()}


def without_token(token: str) -> Damage:
    """Takes a special token out of the tokenizer."""

    def damage(folder: Path) -> None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_text((folder / name).read_text().replace(json.dumps(token), '"<|another|>"'))

    return damage


def without_tensor(name: str) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return damage


def with_tensor(name: str) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        save_file(tensors | {name: torch.ones(4)}, folder / "model.safetensors")

    return damage


GLM_DAMAGES: dict[str, tuple[Damage, str]] = {
    "weights cut short": (cut_short, "model.safetensors is damaged or cut short"),
    "a missing shard": (lose_a_shard, "model-00002-of-00002.safetensors is missing"),
    "no norm of the heads": (
        without_tensor("model.visual.blocks.1.attn.q_norm.weight"),
        "holds no tensor 'visual.blocks.1.attn.q_norm.weight'",
    ),
    "no convolution": (without_tensor("model.visual.downsample.weight"), "holds no tensor 'visual.downsample.weight'"),
    "no norm after the MLP": (
        without_tensor("model.language_model.layers.0.post_mlp_layernorm.weight"),
        "holds no tensor 'language_model.layers.0.post_mlp_layernorm.weight'",
    ),
    "no head": (without_tensor("lm_head.weight"), "no lm_head.weight"),
    "biases that are not computed": (
        with_tensor("model.language_model.layers.0.self_attn.q_proj.bias"),
        "holds 1 tensors that a model of this kind does not have, the first 'model.language_model.layers.0.self_attn.q",
    ),
    "a table of positions": (with_tensor("model.visual.pos_embed.weight"), "the first 'model.visual.pos_embed.weight'"),
    "another chat template": (
        with_text("chat_template.jinja", "{{ messages[0]['content'][-1]['text'] }}<|image|>"),
        "template makes 'Text Recognition:<|image|>' of a question, not '[gMASK]<sop><|user|>\\n<|begin_of_image|>",
    ),
    "no image token": (without_token("<|image|>"), "does not place exactly one image token"),
    "another image token": (config(image_token_id=1), "does not place exactly one image token"),
    "no end token": (
        both(
            both(without("generation_config.json"), text_config(eos_token_id=None)),
            lambda folder: change_json(folder / "tokenizer_config.json", lambda values: values.pop("eos_token")),
        ),
        "names no end token",
    ),
    "quantised weights": (config(quantization_config={"quant_method": "fp8"}), "is quantised"),
    "a quantised language model": (text_config(quantization_config={"quant_method": "fp8"}), "is quantised"),
    "a quantised vision model": (vision_config(quantization_config={"quant_method": "fp8"}), "is quantised"),
    "another activation": (text_config(hidden_act="gelu"), "language model's hidden_act is 'gelu'"),
    "another activation for images": (vision_config(hidden_act="gelu"), "vision model's hidden_act is 'gelu'"),
    "half of each head rotates": (rope(partial_rotary_factor=0.5), "rotates only a part of each head"),
    "rope scaling": (rope(rope_type="yarn"), "rotates only a part of each head, or by other rules"),
    "a preprocessor of another model": (preprocessor(merge_size=4), "merge_size is 4 in the preprocessor, 2 in the"),
    "text fields at the root": (config(text_config=[]), "config.json holds a value that does not fit"),
    "another mean": (
        preprocessor(image_mean=[0.5] * 3),
        "image_mean and image_std of the preprocessor are ((0.5, 0.5,",
    ),
}


PADDLE_DAMAGES: dict[str, tuple[Damage, str]] = {
    "weights cut short": (cut_short, "model.safetensors is damaged or cut short"),
    "no table of positions": (
        without_tensor("visual.vision_model.embeddings.position_embedding.weight"),
        "holds no tensor 'visual.position_embedding.weight'",
    ),
    "another table of positions": (vision_config(image_size=64), "has the shape [9, 72], but config.json asks for [16"),
    "no values": (
        without_tensor("visual.vision_model.encoder.layers.1.self_attn.v_proj.bias"),
        "holds no tensor 'visual.blocks.1.attn.v_proj.bias'",
    ),
    "no norm behind the layers": (
        without_tensor("visual.vision_model.post_layernorm.weight"),
        "holds no tensor 'visual.post_layernorm.weight'",
    ),
    "no norm of the projector": (without_tensor("mlp_AR.pre_norm.bias"), "holds no tensor 'visual.merger.ln_q.bias'"),
    "norms of queries": (
        with_tensor("model.layers.0.self_attn.q_norm.weight"),
        "the first 'model.layers.0.self_attn.q_norm.weight'",
    ),
    "a table of positions smaller than a patch": (
        vision_config(image_size=13),
        "image_size 13 is smaller than a patch",
    ),
    "patches without a size": (vision_config(patch_size=0), "config.json holds a value that does not fit"),
    "a chat template in another alphabet": (
        lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xff\xfe"),
        "chat_template.jinja cannot be read: 'utf-8' codec",
    ),
    "no chat template of its own": (with_text("chat_template.jinja", "{{ 1 }}"), "is not that of a PaddleOCR-VL"),
    "another chat template": (
        with_text("chat_template.jinja", "<|IMAGE_PLACEHOLDER|>Assistant:\n"),
        "template makes '<|IMAGE_PLACEHOLDER|>Assistant:' of a question, not '<|begin_of_sentence|>User: <|IMAGE_",
    ),
    "no image token": (without_token("<|IMAGE_PLACEHOLDER|>"), "does not place exactly one image token"),
    "quantised weights": (config(quantization_config={"quant_method": "fp8"}), "is quantised"),
    "another activation": (text_config(hidden_act="gelu"), "language model's hidden_act is 'gelu'"),
    "another activation for images": (vision_config(hidden_act="gelu"), "vision model's hidden_act is 'gelu'"),
    "biases of the language model": (text_config(use_bias=True), "has biases (use_bias)"),
    "rope scaling": (rope(rope_type="yarn"), "rotates only a part of each head, or by other rules"),
    "a preprocessor of another model": (preprocessor(merge_size=4), "merge_size is 4 in the preprocessor, 2 in the"),
    "another mean": (
        preprocessor(image_mean=[0.48, 0.46, 0.41]),
        "of the preprocessor are ((0.48, 0.46, 0.41), (0.5, 0.5, 0.5)), not ((0.5, 0.5, 0.5)",
    ),
}
FAMILY_DAMAGES = {"glm_ocr": GLM_DAMAGES, "paddleocr_vl": PADDLE_DAMAGES}


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, all in FAMILY_DAMAGES.items() for name in all])
def test_what_is_wrong_with_a_checkpoint_of_another_family_is_named(
    sound_of: dict[str, Path], tmp_path: Path, family: str, name: str
) -> None:
    damage, sentence = FAMILY_DAMAGES[family][name]
    damaged = Path(shutil.copytree(sound_of[family], tmp_path / "damaged"))
    damage(damaged)
    with pytest.raises(ModelError, match=re.escape(sentence)):
        load(damaged)


@pytest.mark.parametrize(
    ("name", "usual", "least_scores"),
    [
        ("published, flat", "V2", {"text": 0.4, "display_formula": 0.4, "seal": 0.45, "image": 0.5}),
        ("tied", "V3", dict.fromkeys(("text", "display_formula", "seal", "image"), 0.3)),
    ],
)
def test_the_end_of_its_chat_template_says_which_detector_a_paddleocr_vl_has(
    tmp_path: Path, name: str, usual: str, least_scores: dict[str, float]
) -> None:
    architecture = read_architecture(make_paddle_checkpoint(tmp_path, PADDLE_SHAPES[name]))
    assert (architecture.images.min_pixels, architecture.images.max_pixels) == (112_896, 1_003_520)
    use = architecture.detectors
    assert (use.usual, use.types) == (
        f"PaddlePaddle/PP-DocLayout{usual}_safetensors",
        (f"pp_doclayout_{usual.lower()}",),
    )
    assert {label: use.least_scores.get(label, use.least_score) for label in least_scores} == least_scores


def test_a_chat_template_of_paddleocr_vl_may_be_one_of_several(sound_of: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sound_of["paddleocr_vl"], tmp_path / "copy"))
    template = folder / "chat_template.jinja"
    of_answers = "{%- if false -%}{{- 'Assistant: ' -}}{%- endif -%}"  # ends as the other version's questions do
    named = [{"name": "default", "template": of_answers + template.read_text()}]
    template.unlink()
    change_json(folder / "tokenizer_config.json", lambda values: values.update(chat_template=named))
    load(folder)
    assert read_architecture(folder).detectors.types == ("pp_doclayout_v3",)


FIELDS: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}
FIELDS["glm_ocr"] = {
    (): ("image_token_id", "text_config", "vision_config"),
    ("text_config",): (
        *("head_dim", "hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads"),
        *("num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_parameters", "vocab_size"),
    ),
    ("text_config", "rope_parameters"): ("mrope_section", "rope_theta"),
    ("vision_config",): (
        *("depth", "hidden_size", "intermediate_size", "num_heads", "out_hidden_size", "patch_size", "rms_norm_eps"),
        *("spatial_merge_size", "temporal_patch_size"),
    ),
}


FIELDS["paddleocr_vl"] = {
    (): ("image_token_id", "vision_config"),
    ("text_config",): tuple(name for name in FIELDS["glm_ocr"]["text_config",] if name != "rope_parameters"),
    ("text_config", "rope_parameters"): ("mrope_section", "rope_theta"),
    ("vision_config",): (
        *("hidden_size", "image_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "patch_size"),
        "spatial_merge_size",
    ),
}


@pytest.mark.parametrize("family", FIELDS)
def test_every_field_of_a_config_that_is_missing_or_no_number_is_named(
    sound_of: dict[str, Path], tmp_path: Path, family: str
) -> None:
    copy = Path(shutil.copytree(sound_of[family], tmp_path / "copy"))
    path = copy / "config.json"
    values = json.loads(path.read_text())
    for objects, names in FIELDS[family].items():
        fields = reduce(dict.__getitem__, objects, values)
        for name in names:
            value = fields.pop(name)
            path.write_text(json.dumps(values))
            with pytest.raises(ModelError, match=f"lacks the field '{name}'"):
                read_architecture(copy)
            for odd in (None, "wide", []):
                fields[name] = odd
                path.write_text(json.dumps(values))
                with pytest.raises(ModelError, match="holds a value that does not fit"):
                    read_architecture(copy)
            fields[name] = value


def test_a_name_that_is_neither_a_folder_nor_a_hub_id_is_refused(tmp_path: Path) -> None:
    for name in ("mineru", "./models/mineru", str(tmp_path / "none"), "~nobody/mineru", "a/b/c"):
        with pytest.raises(ModelError, match="is neither a folder nor a Hugging Face id"):
            load(name)


def test_a_hub_id_that_is_not_here_is_refused_where_there_is_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"the model owner/name cannot be downloaded: .*pass its folder as --model "):
        find_checkpoint("owner/name", None)
    with pytest.raises(ModelError, match=r"the model owner/name cannot be downloaded: .*pass its folder as --layout "):
        find_detector("owner/name")


HTTP = import_module(HTTPError.__module__.partition(".")[0])
"""The library that huggingface_hub uses: httpx or httpx2."""


@pytest.mark.parametrize(
    "failure", [HTTP.ReadTimeout("lost"), HTTP.ProxyError("lost"), RuntimeError("lost")], ids=["read", "proxy", "xet"]
)
def test_a_download_that_breaks_off_is_continued_by_another_run(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def break_off(*_: object, **__: object) -> str:
        raise failure

    monkeypatch.setattr("huggingface_hub.snapshot_download", break_off)
    with pytest.raises(ModelError, match=r"cannot be downloaded: run again to continue, .* folder .*: lost\)$"):
        find_checkpoint("owner/name", None)


def test_tied_said_in_text_config_only_needs_no_lm_head(folder: Path) -> None:
    config(tie_word_embeddings=False)(folder)
    assert not any("lm_head" in name for name in load_file(folder / "model.safetensors"))
    assert read_architecture(folder).language.tied_embeddings
    load(folder)


def test_shards_load_as_one_file_does(sound: Path, folder: Path) -> None:
    shard(folder)
    assert answer(folder).text == answer(sound).text


def test_an_index_beside_a_single_file_is_left_alone(sound: Path, folder: Path) -> None:
    shard(folder)
    shutil.copy(sound / "model.safetensors", folder)
    assert weight_files(folder) == ["model.safetensors"]


@pytest.mark.parametrize(("root", "text"), [(True, True), (False, True), (False, False)])
def test_a_stored_lm_head_is_used_whatever_the_config_says(folder: Path, root: bool, text: bool) -> None:
    config(tie_word_embeddings=root)(folder)
    text_config(tie_word_embeddings=text)(folder)
    embeddings = load_file(folder / "model.safetensors")[EMBEDDINGS]
    stored = store_lm_head(folder, embeddings.flip(0))
    assert torch.equal(oracle(folder).lm_head.weight, stored)
    assert torch.equal(linear_weights(folder)[-1], stored)


def test_a_stored_lm_head_that_equals_the_embeddings_takes_no_memory(folder: Path) -> None:
    config(tie_word_embeddings=False)(folder)
    NOT_TIED(folder)
    store_lm_head(folder, load_file(folder / "model.safetensors")[EMBEDDINGS])
    embeddings, *_, lm_head = linear_weights(folder)
    assert torch.equal(lm_head, embeddings)
    assert lm_head.data_ptr() == embeddings.data_ptr()


def store_lm_head(folder: Path, weights: Tensor) -> Tensor:
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = weights.clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors["lm_head.weight"]


def linear_weights(folder: Path) -> list[Tensor]:
    """The language model's embeddings, then the weights of its linear layers in the order they are read."""

    class Recorder(Ops):
        def linear(self, layer: Affine) -> Linear:
            taken.append(layer.weight)
            return super().linear(layer)

    taken: list[Tensor] = []
    cpu = torch.device("cpu")
    weights = WeightReader(folder, read_architecture(folder).names, device=cpu, dtype=torch.float32)
    model = LanguageModel(read_architecture(folder).language, weights, Recorder(cpu), cpu)
    return [model._embeddings, *taken]


def answer(folder: Path) -> Completion:
    """What the model answers about a grey image, in up to 8 tokens."""
    engine = load(folder)
    request = Request(Pixels(56, 84, bytearray(b"\x80" * (56 * 84 * 3))), "\nText Recognition:", Sampling(8))
    assert engine.submit(0, request) is None
    return answers_of(engine)[0]


def test_both_layouts_of_the_config_say_the_same(tmp_path: Path) -> None:
    flat, nested = (
        read_architecture(make_checkpoint(tmp_path / str(is_flat), Shape(flat_config=is_flat)))
        for is_flat in (True, False)
    )
    assert flat == nested


def test_both_layouts_of_the_image_limits_say_the_same(folder: Path) -> None:
    path = folder / "preprocessor_config.json"
    by_edges = images_with(path, {"size": {"shortest_edge": 784, "longest_edge": 9_408}})
    by_pixels = images_with(path, {"min_pixels": 784, "max_pixels": 9_408})
    in_processor = read_architecture_of_processor(folder)
    assert by_edges == by_pixels == in_processor
    assert (by_edges.images.min_pixels, by_edges.images.max_pixels) == (784, 9_408)


def test_image_limits_in_processor_config_come_first(folder: Path) -> None:
    nested = {"image_processor": {"size": {"shortest_edge": 784, "longest_edge": 9_408}}}
    (folder / "processor_config.json").write_text(json.dumps(nested))
    images, expected = read_architecture(folder).images, Qwen2VLImageProcessorPil.from_pretrained(folder).size
    assert (images.min_pixels, images.max_pixels) == (expected.shortest_edge, expected.longest_edge) == (784, 9_408)


TEMPLATE_FILES = ("tokenizer_config.json", "chat_template.jinja", "chat_template.json", "processor_config.json")
"""From the last that is read to the first."""


@pytest.mark.parametrize("num_files", [2, 3, 4])
def test_chat_templates_come_in_the_order_of_transformers_processor(folder: Path, num_files: int) -> None:
    for name in TEMPLATE_FILES[:num_files]:
        template = f"{name}<|image_pad|>"
        if name.endswith(".json"):
            values = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
            (folder / name).write_text(json.dumps(values | {"chat_template": template}))
        else:
            (folder / name).write_text(template)
    prompts = PromptFormat(folder, read_architecture(folder))
    used = prompts.decode(prompts.encode("", num_image_tokens=1).token_ids)
    assert used == ProcessorMixin.get_processor_dict(folder)[0]["chat_template"]
    assert used.startswith(TEMPLATE_FILES[num_files - 1])


def images_with(path: Path, limits: dict[str, object]) -> Architecture:
    path.write_text(json.dumps({"patch_size": 14, "merge_size": 2, **limits}))
    return read_architecture(path.parent)


def read_architecture_of_processor(folder: Path) -> Architecture:
    """The architecture, with the preprocessor's values in processor_config.json, as in newer checkpoints."""
    values = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": values}))
    return read_architecture(folder)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_read_as_it_was_made(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    read = read_architecture(make_checkpoint(tmp_path, shape))
    assert read.language.head_dim == shape.head_dim
    assert read.language.mrope_section == shape.mrope
    assert read.language.tied_embeddings == shape.tied
    assert (read.vision.patch_size, read.vision.head_dim) == (shape.patch_size, shape.vision_head_dim)


def test_the_fingerprint_is_of_the_content_and_not_of_the_place(sound: Path, folder: Path) -> None:
    assert fingerprints(folder) == fingerprints(sound)


def flip_a_weight_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = bytearray(path.read_bytes())
    weights[-1] ^= 1
    path.write_bytes(weights)


@pytest.mark.parametrize(
    "change",
    [
        flip_a_weight_bit,
        config(image_token_id=261),
        with_text("generation_config.json", "{}"),
        with_text("chat_template.jinja", "{{ messages }}"),
        shard,
    ],
    ids=["weights", "config", "generation config", "chat template", "shards"],
)
def test_the_fingerprint_changes_with_whatever_may_change_the_text(sound: Path, folder: Path, change: Damage) -> None:
    change(folder)
    for form, before in zip(fingerprints(folder), fingerprints(sound), strict=True):
        assert form != before


@pytest.mark.parametrize("name", ["configuration.json", "LICENSE.txt", "README.md", "page.jinja", "vocab.json.orig"])
def test_the_fingerprint_is_not_of_a_file_that_nobody_reads(sound: Path, folder: Path, name: str) -> None:
    (folder / name).write_text("{}")
    assert fingerprints(folder)[0] == fingerprints(sound)[0]


def test_rows_that_have_the_older_form_of_the_fingerprint_keep_it(folder: Path) -> None:
    form, same = fingerprints(folder)
    assert form == same
    (folder / "configuration.json").write_text("{}")
    form, older = fingerprints(folder)
    assert form != older
    assert fingerprints(folder, older) == (older, form)
    assert fingerprints(folder, form) == fingerprints(folder, "of another model") == (form, older)


def test_weights_are_kept_in_the_dtype_asked_for(sound: Path) -> None:
    cpu = torch.device("cpu")
    model = load_model(sound, device=Device(cpu), dtype=torch.bfloat16, ops=Ops(cpu))
    assert model.language.dtype == torch.bfloat16
