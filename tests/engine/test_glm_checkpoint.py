"""What a GLM-OCR checkpoint has to be, and the error message that says what is wrong with one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import load_file, save_file

from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.checkpoint import load_model
from batchocr.errors import ModelError
from batchocr.planning.families import read_architecture
from tests.support.glm_checkpoints import make_glm_checkpoint

CPU = torch.device("cpu")
Damage: TypeAlias = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_glm_checkpoint(tmp_path_factory.mktemp("glm"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of a sound checkpoint, to be changed."""
    return Path(shutil.copytree(sound, tmp_path / "checkpoint"))


def load(folder: Path) -> None:
    load_model(folder, device=Device(CPU), dtype=torch.float32, ops=Ops(CPU))


def with_values(part: str, **values: Any) -> Damage:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        target = config[part] if part else config
        target.update(values)
        path.write_text(json.dumps(config))

    return change


def with_template(template: str) -> Damage:
    return lambda folder: (folder / "chat_template.jinja").write_text(template)


def with_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def apply(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


NORM = "model.language_model.layers.0.post_mlp_layernorm.weight"
BIAS = "model.language_model.layers.1.self_attn.q_proj.bias"
ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
DAMAGES: dict[str, tuple[Damage, str]] = {
    "another template": (
        with_template("{{ messages[0]['content'][-1]['text'] }}<|image|>"),
        r"chat template makes 'Text Recognition:<\|image\|>' of a question, not '\[gMASK\]<sop>.*another version",
    ),
    "no image in the template": (with_template("[gMASK]<sop>"), "does not place exactly one image token"),
    "a tensor is missing": (with_tensors(lambda held: held.pop(NORM)), "holds no tensor '.*post_mlp_layernorm"),
    "a tensor too many": (
        with_tensors(lambda held: held.update({BIAS: torch.ones(64)})),
        "holds 1 tensors that a model of this kind does not have, the first 'model.language_model.layers.1.*q_proj.b",
    ),
    "a layer too many": (with_values("text_config", num_hidden_layers=1), "holds .* tensors that a model of this kind"),
    "heads rotate in part": (
        with_values("text_config", rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
        "rotates only a part of each head",
    ),
    "another activation": (with_values("vision_config", hidden_act="gelu"), "the vision model's hidden_act is 'gelu'"),
    "quantised": (with_values("", quantization_config={"quant_method": "fp8"}), "quanti"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_named(folder: Path, name: str) -> None:
    load(folder)
    damage, said = DAMAGES[name]
    damage(folder)
    with pytest.raises(ModelError, match=said):
        load(folder)


def values_of(config: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in config.items():
        yield (*at, name)
        if isinstance(value, dict):
            yield from values_of(value, (*at, name))


@pytest.mark.parametrize("value", [None, "many", [], {}, -3], ids=str)
def test_a_value_that_does_not_fit_is_an_error_in_a_sentence_or_of_no_account(folder: Path, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    for place in values_of(config):
        changed = json.loads(json.dumps(config))
        target = changed
        for name in place[:-1]:
            target = target[name]
        target[place[-1]] = value
        (folder / "config.json").write_text(json.dumps(changed))
        with suppress(ModelError):
            read_architecture(folder)
        del target[place[-1]]
        (folder / "config.json").write_text(json.dumps(changed))
        with suppress(ModelError):
            read_architecture(folder)
