"""Writes paddle_pages.json: pages with drawn boxes and given answers, and what paddlex 3.7.2 makes of them.

paddlex pins what we do not, so it has an environment of its own, without paddlepaddle:

    python -m venv /tmp/paddlex && /tmp/paddlex/bin/pip install "paddlex[ocr-core]==3.7.2"
    /tmp/paddlex/bin/python -m tests.support.paddle_oracle
"""

from __future__ import annotations

import json
import os
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.glm_oracle import Box, Found, drawn, found_at, share_within

PAGES = Path(__file__).with_name("paddle_pages.json")
NUM_PAGES = 40
SIZES = ((1654, 2339), (2339, 1654), (1000, 1000), (613, 877))
CONFIGS = {"pp_doclayout_v2": "PaddleOCR-VL", "pp_doclayout_v3": "PaddleOCR-VL-1.5"}
LABELS = (
    *("abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title", "figure_title"),
    *("footer", "footer_image", "footnote", "formula_number", "header", "header_image", "image", "inline_formula"),
    *("number", "paragraph_title", "reference", "reference_content", "seal", "table", "text", "vertical_text"),
    "vision_footnote",
)
LOOPING = "The committee met again on Monday. "
LOOP, LINES, SHORT_LOOP = "Before it. " + LOOPING * 20, "\n".join(["A", "B", *["the same"] * 30]), "no, " * 20
LOOPING_TABLE = "<fcel>a<fcel>b<nl>" * 400
TWO_MARKS = "$ z $ or \\(\\alpha\\)"
PRICES = "$5 or \\( x \\) dollars"
UNTAGGED = "before<fcel>a<nl><fcel>b<nl>"
ANSWERS: Mapping[str, Sequence[str]] = {
    "OCR:": (
        *("Plain words in a line.", "  Two lines\nof one paragraph \n", "where \\( x^2 \\) is small and \\(y\\) grows"),
        *("\\[\\[ a + b \\]\\]", "so \\[ a \\] holds", "", "   ", "数学很好", "# A title"),
        *(LOOP, LINES, SHORT_LOOP, PRICES, TWO_MARKS, "\\( (2.1) \\)", "(1)"),
    ),
    "Table Recognition:": (
        "<fcel>a<fcel>b<nl><fcel>1 & 2<fcel><b><nl>",
        "<fcel>wide<lcel><lcel><nl><fcel>a<fcel>b<ecel><nl>",
        "<fcel>high<fcel>b<nl><ucel><fcel>c<nl><ucel><ecel><nl>",
        "<fcel>both<lcel><fcel>b<nl><ucel><xcel><fcel>c<nl>",
        "<ucel><fcel>a<nl><fcel>b<lcel><nl>",
        "<fcel>a<fcel>b<fcel>c<nl><fcel>short<nl><fcel>d<fcel>e<fcel>f<nl>",
        "<fcel>a<ecel><ecel><ecel><nl><fcel>b<nl><fcel>c<nl>",
        "<fcel>one row<fcel>b",
        "<fcel>where \\( x \\)<fcel>b\nc<nl>",
        "no table at all",
        LOOPING_TABLE,
        UNTAGGED,
    ),
    "Formula Recognition:": (
        *(
            "\\[ E = mc^2 \\]",
            "\\[\\[\nx\n\\]\\]",
            "\\( y \\)",
            "\\alpha + \\beta",
            "",
            "\\[ a \\begin{matrix} 1 \\end{matrix} \\]",
        ),
    ),
    "Chart Recognition:": ("Year | Sales\n2020 | 1\n2021 | 2", "no table"),
    "Seal Recognition:": ("ACME & Co.",),
}
ALL_ANSWERS = sorted({answer for answers in ANSWERS.values() for answer in answers})


def main() -> None:
    os.environ["PADDLE_PDX_DISABLE_MODEL_SOURCE_CHECK"] = "True"
    read_columns_apart()
    dice = random.Random(0)
    pages = [page_of(dice, number) for number in range(NUM_PAGES)]
    lines = ",\n".join(json.dumps(page, ensure_ascii=False) for page in pages)
    PAGES.write_text(f'{{"answers": {json.dumps(ALL_ANSWERS, ensure_ascii=False)}, "pages": [\n{lines}\n]}}\n', "utf-8")


def read_columns_apart() -> None:
    """Let texts of two columns, which share no width, not be read together: we never do."""
    from paddlex.inference.pipelines.paddleocr_vl import uilts

    overlap = uilts.calculate_projection_overlap_ratio
    uilts.calculate_projection_overlap_ratio = lambda *boxes: overlap(*boxes) or 1e-9


def page_of(dice: random.Random, number: int) -> dict[str, Any]:
    """A page: what a detector found on it, and each block that the pipeline has, with its answer and content."""
    from paddlex.inference.pipelines.components import CropByBoxes
    from paddlex.inference.pipelines.paddleocr_vl.pipeline import _PaddleOCRVLPipeline

    size = SIZES[number % len(SIZES)]
    detector, reads_figures = (*CONFIGS,)[number % 2], number % 4 > 1
    while we_differ(found := [*drawn(dice), *texts_around(dice), *specks(dice)]):
        pass
    ink = [box for label, _, *box in found if "formula" in label and dice.random() < 0.7]
    model = Model(dice)
    pipeline = object.__new__(_PaddleOCRVLPipeline)
    pipeline.crop_by_boxes, pipeline.layout_prep_cpu_workers, pipeline.vl_rec_model = CropByBoxes(), 0, model
    pages, *_ = pipeline.get_layout_parsing_results(
        [np.asarray(picture(size, ink))],
        [{"boxes": boxes_of(detector, found, size)}],
        [[]],  # pictures in tables are not painted over
        use_chart_recognition=reads_figures,
        use_seal_recognition=reads_figures,
        layout_shape_mode="rect",
    )
    unread = {"image", "header_image", "footer_image", *(() if reads_figures else ("chart", "seal"))}
    return {
        "size": size,
        "detector": detector,
        "reads_figures": reads_figures,
        "found": found,
        "ink": ink,
        "asked": model.asked,
        "blocks": list(joined(pages[0], unread)),
    }


def joined(blocks: Sequence[Any], unread: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the blocks, those that were read together as one."""
    last: dict[str, Any] = {}
    group = None
    for block in blocks:
        if block.group_id is not None and block.group_id == group:
            last["boxes"].append(block.bbox)
            continue
        if last:
            yield last
        content = None if block.label in unread else block.content
        last, group = {"label": block.label, "boxes": [block.bbox], "content": content}, block.group_id
    if last:
        yield last


class Model:
    """Answers each question with one of the answers to such questions."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.asked: list[tuple[str, int, int, int, int]] = []
        """Of each question: prompt, width, height and checksum of its crop, number of the answer."""

    def predict(self, items: Sequence[Mapping[str, Any]], **_: Any) -> Iterator[dict[str, str]]:
        for item in items:
            answer = self._dice.choice(ANSWERS[item["query"]])
            height, width, _channels = item["image"].shape
            checksum = zlib.crc32(item["image"].tobytes())
            self.asked.append((item["query"], width, height, checksum, ALL_ANSWERS.index(answer)))
            yield {"result": answer}


def picture(size: tuple[int, int], ink: Sequence[Sequence[float]]) -> Image.Image:
    """A page of uneven grey, so that every crop is another one, with ink in the middle of these boxes."""
    width, height = size
    across, down = np.arange(width)[None, :], np.arange(height)[:, None]
    grey = (225 + (across // 3 + down // 2) % 29).astype(np.uint8)
    for x0, y0, x1, y1 in ink:
        left, right = int((0.7 * x0 + 0.3 * x1) * width), int((0.4 * x0 + 0.6 * x1) * width)
        top, bottom = int((0.8 * y0 + 0.2 * y1) * height), int((0.3 * y0 + 0.7 * y1) * height)
        grey[max(0, top) : bottom, max(0, left) : right] = 40
    return Image.fromarray(grey).convert("RGB")


def boxes_of(detector: str, found: Sequence[Found], size: tuple[int, int]) -> list[dict[str, Any]]:
    """What the detectors' own post-processing makes of these boxes, with the settings of the pipeline."""
    import paddlex
    import yaml
    from paddlex.inference.models.layout_analysis.processors import LayoutAnalysisProcess

    config = Path(paddlex.__file__).parent / "configs" / "pipelines" / f"{CONFIGS[detector]}.yaml"
    settings = yaml.safe_load(config.read_text("utf-8"))["SubModules"]["LayoutDetection"]
    width, height = size
    rows = [
        [LABELS.index(label), score, x0 * width, y0 * height, x1 * width, y1 * height, order]
        for order, (label, score, x0, y0, x1, y1) in enumerate(found)
    ]
    process = LayoutAnalysisProcess(labels=list(LABELS), scale_size=[800, 800])
    boxes: list[dict[str, Any]] = process.apply(
        np.array(rows),
        img_size=size,
        threshold=settings["threshold"],
        layout_nms=settings["layout_nms"],
        layout_unclip_ratio=settings["layout_unclip_ratio"],
        layout_merge_bboxes_mode=settings["layout_merge_bboxes_mode"],
        layout_shape_mode="rect",
    )
    return boxes


def texts_around(dice: random.Random) -> Iterator[Found]:
    """Yield texts that go on below, beside a figure or without one."""
    left, right, top, bottom = 0.05, 0.95, 0.92, 0.955
    inner = dice.choice((0.5, 0.7))
    narrow: Box = dice.choice(((left, bottom + 0.002, inner, 0.995), (1 - inner, bottom + 0.002, right, 0.995)))
    yield exactly(dice, "text", (left, top, right, bottom))
    if dice.random() < 0.7:
        beside = (inner + 0.02, bottom + 0.002, right, 0.99) if narrow[0] == left else (left, 0.957, 0.28, 0.99)
        yield exactly(dice, dice.choice(("image", "table", "chart", "paragraph_title")), beside)
    yield exactly(dice, "text", narrow)


def exactly(dice: random.Random, label: str, box: Box) -> Found:
    return (label, round(dice.uniform(0.5, 0.99), 4), *box)


def specks(dice: random.Random) -> Iterator[Found]:
    """Yield columns that are too high to be read together, boxes that are too thin, a frame."""
    if dice.random() < 0.4:
        yield exactly(dice, "text", (0.953, 0.1, 0.97, 0.5))
        yield exactly(dice, "image", (0.955, 0.55, 0.99, 0.6))
        yield exactly(dice, "text", (0.973, 0.1, 0.99, 0.5))
    if dice.random() < 0.5:
        yield found_at(dice, "text", (0.001, 0.3, 0.004, 0.5))
    if dice.random() < 0.3:
        yield found_at(dice, "reference", (0.04, 0.5, 0.6, 0.9))


def we_differ(found: Sequence[Found]) -> bool:
    """Whether two boxes hold each other, two scores are the same, or one is as low as can be; or a box ends before it
    begins, at which the authors' code may fail."""
    scores = [score for _, score, *_ in found]
    if min(scores) <= 0.3001 or len({*scores}) < len(found):
        return True
    return any(x1 < x0 or y1 < y0 for *_, x0, y0, x1, y1 in found) or any(
        share_within(one, other) > 0.88 and share_within(other, one) > 0.88
        for one in found
        for other in found
        if one is not other and one[0] != other[0]
    )


if __name__ == "__main__":
    main()
