"""A layout detector: transformers' own model, with preprocessing and post-processing of ours that need no torchvision.

Everything is in float32: a page takes 0.2 TFLOP, a hundredth of what the rest of it does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional

from batchocr.data import Completion, Pixels, failed_completion
from batchocr.engine.backend.device import Device
from batchocr.errors import ModelError
from batchocr.planning.architecture import DetectorUse

_SIDE_PX: Final = 800
_SHARE_DIGITS, _SCORE_DIGITS = 5, 4


class Detector:
    """Finds the parts of pages, their classes and their order."""

    def __init__(self, folder: Path, device: Device, use: DetectorUse | None = None) -> None:
        """use: with the model that reads what is found. Raises ModelError."""
        from torch.utils.flop_counter import FlopCounterMode  # loads Triton

        self._device = device
        self._model = _load(folder).to(device.torch_device)
        self._labels: dict[int, str] = self._model.config.id2label
        self._use = use or DetectorUse()
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            try:
                self._model(torch.zeros(1, 3, _SIDE_PX, _SIDE_PX, device=device.torch_device))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                lacking = ", ".join(name for name, value in self._model.config.to_dict().items() if value is None)
                raise ModelError(
                    f"the layout detector in {folder} cannot run: {error}; its config.json says nothing of {lacking}, "
                    "of which it may need some: compare it with the original's"
                ) from error
        self.flop_per_image = float(counter.get_total_flops())
        """What the detector computes for a page, in floating-point operations."""

    def detect(self, images: Sequence[Pixels]) -> Tensor:
        """What is found in each image, on the device: see `candidates`."""
        return candidates(*self.outputs(images))

    def outputs(self, images: Sequence[Pixels]) -> tuple[Tensor, Tensor, Tensor]:
        """What transformers' model says of the images: logits, boxes and order logits, as `candidates` takes them."""
        found = self._model(torch.stack([self._prepared(image) for image in images]))
        return found.logits, found.pred_boxes, found.order_logits

    def answer(self, found: Tensor) -> Completion:
        """The answer about an image. found: its candidates, on the host.

        Its text is a JSON list of [label, score, x0, y0, x1, y1] in reading order, boxes in shares of the page, or ''.
        mean_probability and min_logprob are of the scores.
        """
        if not found.isfinite().all():
            return failed_completion("the detector computed values that are not finite")
        labels = [self._labels.get(int(label), "") for label in found[:, 1]]
        least_scores = [self._use.least_scores.get(label, self._use.least_score) for label in labels]
        kept = found[found[:, 0] >= torch.tensor(least_scores)]
        kept = kept[torch.sort(kept[:, 6], stable=True).indices]
        parts = [
            [
                self._labels.get(int(label), str(int(label))),
                round(score, _SCORE_DIGITS),
                *(round(share, _SHARE_DIGITS) for share in box),
            ]
            for score, label, *box, _ in kept.tolist()
        ]
        scores = kept[:, 0].tolist() or [1.0]
        mean, least = sum(scores) / len(scores), math.log(min(scores))
        text = json.dumps(parts) if parts else ""
        return Completion(text, "stop", 0, 0, mean_probability=mean, min_logprob=least)

    def _prepared(self, image: Pixels) -> Tensor:
        pixels = torch.frombuffer(image.data, dtype=torch.uint8).view(image.height, image.width, 3)
        return prepared(self._device.upload(pixels))


def prepared(pixels: Tensor) -> Tensor:
    """The input for an image: float32 [3, 800, 800] from 0 to 1.

    pixels: uint8 [height, width, 3]. Bicubic without antialias and rounded, as OpenCV does it, with which the detectors
    were trained, and as torchvision does it on a GPU. On a CPU torchvision takes torch's kernel for uint8, which
    rounds in between and differs by up to 22 levels.
    """
    image = pixels.permute(2, 0, 1).unsqueeze(0).float()
    resized = functional.interpolate(image, size=(_SIDE_PX, _SIDE_PX), mode="bicubic", antialias=False)
    return resized[0].clamp_(0, 255).round_().div_(255)


def candidates(logits: Tensor, boxes: Tensor, order_logits: Tensor) -> Tensor:
    """The likeliest pairs of box and class, as many as there are queries, the likeliest first: float32 [images,
    queries, 7], columns score, class, x0, y0, x1, y1 in shares of the image, place in reading order.

    logits: [images, queries, classes]. boxes: [images, queries, 4], centre and size. order_logits: [images, queries,
    queries]; of each pair of queries, how sure it is that the first comes before the second.
    Source: transformers, PPDocLayoutV2ImageProcessor.post_process_object_detection.
    """
    num_queries, num_classes = logits.shape[1:]
    scores, index = torch.topk(logits.sigmoid().flatten(1), num_queries, dim=-1)
    query = index // num_classes
    centre, size = boxes[..., :2], boxes[..., 2:]
    corners = torch.cat([centre - 0.5 * size, centre + 0.5 * size], dim=-1)
    corners = corners.gather(1, query.unsqueeze(-1).expand(-1, -1, 4))
    places = _places(order_logits).gather(1, query)
    columns = (scores, index % num_classes, *corners.unbind(-1), places)
    return torch.stack([column.float() for column in columns], dim=-1)


def _places(order_logits: Tensor) -> Tensor:
    """The place of each query in reading order: int64 [images, queries]. Each pair's upper entry is a vote."""
    before = order_logits.sigmoid()
    votes = before.triu(diagonal=1).sum(dim=1) + (1.0 - before.transpose(1, 2)).tril(diagonal=-1).sum(dim=1)
    return votes.argsort(dim=1).argsort(dim=1)


def _load(folder: Path) -> Any:
    """The model, ready to run, on the host. Raises ModelError."""
    from transformers import AutoModelForObjectDetection
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model, loading = AutoModelForObjectDetection.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, SafetensorError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(f"the layout detector in {folder} cannot be loaded: {reason}") from error
    if missing := sorted(loading["missing_keys"]):
        raise ModelError(f"{folder} lacks {len(missing)} of the detector's weights, {missing[0]} among them")
    return model.eval()
