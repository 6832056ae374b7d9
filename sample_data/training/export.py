"""Writes a trained model as a checkpoint in MinerU2.5's format."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GenerationConfig, Qwen2VLConfig

from sample_data.training.batches import IMAGE_MEAN, IMAGE_STD
from sample_data.training.model import ReadingModel, Shape
from sample_data.training.samples import MAX_PIXELS, MIN_PIXELS
from sample_data.training.vocabulary import MAX_LENGTH, Vocabulary

LOGIT_SCALE = 4.0
"""The factor for the logits. The best token stays the best, but MinerU's presence and frequency penalties, which were
chosen for tokens of whole words, no longer outweigh it when a letter occurs for the fiftieth time."""

_CHANNELS, _FRAMES = 3, 2


def export(model: ReadingModel, vocabulary: Vocabulary, folder: Path) -> None:
    """Write config, weights in bfloat16, tokenizer and preprocessing into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(checkpoint_weights(model), folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(checkpoint_config(model.shape, vocabulary).to_json_string())
    config |= {"architectures": ["Qwen2VLForConditionalGeneration"], "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    vocabulary.tokenizer().save_pretrained(folder)
    end, padding = vocabulary.end, vocabulary.padding
    generation = GenerationConfig(
        bos_token_id=padding, pad_token_id=padding, eos_token_id=[end, padding], do_sample=False
    )
    generation.save_pretrained(folder)
    preprocessing = {
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "patch_size": model.shape.patch,
        "temporal_patch_size": _FRAMES,
        "merge_size": model.shape.merge,
        "image_mean": IMAGE_MEAN,
        "image_std": IMAGE_STD,
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessing, indent=2) + "\n")


def load_exported(model: ReadingModel, folder: Path) -> None:
    """Give the model the weights that `export` wrote into the folder; its heads keep theirs."""
    weights = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    spread = weights["visual.patch_embed.proj.weight"]
    weights["visual.patch_embed.proj.weight"] = spread.sum((1, 2)).flatten(1)
    weights["lm_head.weight"] = weights["lm_head.weight"] / LOGIT_SCALE
    model.load_state_dict(weights, strict=not model.heads)


def checkpoint_weights(model: ReadingModel) -> dict[str, Tensor]:
    """Return the weights by transformers' names; the grey patch projection is spread over channels and frames."""
    weights = {
        name: tensor.detach().cpu() for name, tensor in model.state_dict().items() if not name.startswith("heads.")
    }
    grey = weights["visual.patch_embed.proj.weight"].view(-1, 1, 1, model.shape.patch, model.shape.patch)
    spread = grey.expand(-1, _CHANNELS, _FRAMES, -1, -1) / (_CHANNELS * _FRAMES)
    weights["visual.patch_embed.proj.weight"] = spread
    weights["lm_head.weight"] = LOGIT_SCALE * weights["lm_head.weight"]
    return {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}


def checkpoint_config(shape: Shape, vocabulary: Vocabulary) -> Qwen2VLConfig:
    """Return the configuration that transformers builds this model from."""
    return Qwen2VLConfig(
        text_config={
            "vocab_size": shape.vocab_size,
            "hidden_size": shape.width,
            "intermediate_size": shape.mlp_width,
            "num_hidden_layers": shape.depth,
            "num_attention_heads": shape.num_heads,
            "num_key_value_heads": shape.num_heads,
            "max_position_embeddings": MAX_LENGTH,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": shape.rope_theta,
                "mrope_section": list(shape.mrope_section),
            },
            "tie_word_embeddings": False,
            "bos_token_id": vocabulary.padding,
            "eos_token_id": vocabulary.end,
        },
        vision_config={
            "depth": shape.vision_depth,
            "embed_dim": shape.vision_width,
            "num_heads": shape.vision_heads,
            "mlp_ratio": shape.mlp_ratio,
            "hidden_size": shape.width,
            "patch_size": shape.patch,
            "spatial_merge_size": shape.merge,
            "temporal_patch_size": _FRAMES,
        },
        image_token_id=vocabulary.image,
        video_token_id=vocabulary.ids(("<|video_pad|>",))[0],
        vision_start_token_id=vocabulary.ids(("<|vision_start|>",))[0],
        vision_end_token_id=vocabulary.ids(("<|vision_end|>",))[0],
        tie_word_embeddings=False,
    )
