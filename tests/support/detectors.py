"""Tiny layout detectors of real shape with random weights, and transformers' own post-processing as the oracle."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    PPDocLayoutV2Config,
    PPDocLayoutV2ForObjectDetection,
    PPDocLayoutV3Config,
    PPDocLayoutV3ForObjectDetection,
)

LABELS = (
    *("abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title", "figure_title"),
    *("footer", "footer_image", "footnote", "formula_number", "header", "header_image", "image", "inline_formula"),
    *("number", "paragraph_title", "reference", "reference_content", "seal", "table", "text", "vertical_text"),
    "vision_footnote",
)
"""Those of PP-DocLayoutV2 and V3, in their order."""

KINDS = ("V2", "V3")
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("d_model", "encoder_hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 16),
    **{name: [16, 16, 16] for name in ("encoder_in_channels", "decoder_in_channels")},
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "decoder_layers"), 2),
    "decoder_n_points": 2,
    "num_queries": 20,
    "id2label": dict(enumerate(LABELS)),
}


def make_detector(folder: Path, kind: str = "V2", *, seed: int = 0, bias: float = -3.4) -> Path:
    """Write a checkpoint as transformers does, and return its folder. bias: of all scores; with the default a few boxes
    of a page are above the threshold, with a far lower one none is."""
    torch.manual_seed(seed)
    model = _v2() if kind == "V2" else _v3()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            # Wide enough that images matter: as transformers makes them, all boxes and scores are alike.
            parameter.data.normal_(std=1.2 * parameter[0].numel() ** -0.5)
    scores = model.model.decoder.class_embed
    last = scores[-1] if isinstance(scores, torch.nn.ModuleList) else scores
    last.bias.data.fill_(bias)
    last.bias.data[[LABELS.index("text"), LABELS.index("paragraph_title")]] += 3.0
    model.save_pretrained(folder)
    return folder


def _v2() -> Any:
    order = {"num_attention_heads": 2, "num_hidden_layers": 1, "coordinate_size": 4, "shape_size": 4}
    order |= {"hidden_size": 24, "intermediate_size": 16, "global_pointer_head_size": 8, "num_classes": 20}
    config = PPDocLayoutV2Config(
        **_SIZES,
        backbone_config=_backbone([1, 2, 3]),
        class_thresholds=[0.5] * len(LABELS),
        class_order=[index % 20 for index in range(len(LABELS))],
        reading_order_config=order,
    )
    return PPDocLayoutV2ForObjectDetection(config).eval()


def _v3() -> Any:
    masks = {"x4_feat_dim": 8, "mask_feature_channels": [8, 8], "num_prototypes": 4, "global_pointer_head_size": 8}
    return PPDocLayoutV3ForObjectDetection(
        PPDocLayoutV3Config(**_SIZES, **masks, backbone_config=_backbone([0, 1, 2, 3]))
    ).eval()


def _backbone(stages: list[int]) -> dict[str, Any]:
    return {
        "model_type": "hgnet_v2",
        "embedding_size": 8,
        "depths": [1, 1, 1, 1],
        "hidden_sizes": [8, 16, 16, 16],
        "stem_channels": [3, 8, 8],
        "stage_in_channels": [8, 8, 16, 16],
        "stage_mid_channels": [8, 8, 8, 8],
        "stage_out_channels": [8, 16, 16, 16],
        "stage_num_blocks": [1, 1, 1, 1],
        "stage_numb_of_layers": [1, 1, 1, 1],
        "out_features": [f"stage{stage + 1}" for stage in stages],
    }


def transformers_post_process(outputs: Any, *, threshold: float = 0.5) -> list[dict[str, Tensor]]:
    """What transformers makes of a detector's outputs, boxes in shares of the image. Its module imports torchvision,
    so the two functions are taken from its source."""
    spec = find_spec("transformers.models.pp_doclayout_v2.image_processing_pp_doclayout_v2")
    assert spec is not None and spec.origin is not None
    module = ast.parse(Path(spec.origin).read_text())
    [processor] = (node for node in module.body if isinstance(node, ast.ClassDef))
    wanted = ("_get_order_seqs", "post_process_object_detection")
    processor.body = [node for node in processor.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    processor.bases, processor.decorator_list = [], []
    names: dict[str, Any] = {"torch": torch, "TensorType": None}
    later = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module([*later, processor], []), spec.origin, "exec"), names)
    found: list[dict[str, Tensor]] = names[processor.name]().post_process_object_detection(outputs, threshold)
    return found
