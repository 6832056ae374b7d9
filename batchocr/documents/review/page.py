"""The data of one row for the review page's script. What a model wrote is cut where a browser could not show it."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence

from PIL import Image

from batchocr.data import Block, PageResult, letters_end
from batchocr.documents.findings import AuditFinding
from batchocr.documents.markup.html import block_html
from batchocr.documents.review.choose import ChosenRow
from batchocr.tables.page_quality import quality, traits_of

DPI = 110
MAX_EDGE = 1600
"""The longest side of a page's picture, in px, as for images without dpi."""

MAX_BLOCKS = 3_000
MAX_FINDINGS = 200
MAX_PAGE_CHARACTERS = 400_000
"""What a page may hold in all; there are hundreds of pages in the file."""

_MAX_BLOCK_CHARACTERS = 200_000
_MAX_TYPE_CHARACTERS = 60
_MAX_FINDING_CHARACTERS = 2_000
_WEBP_QUALITY = 55


Json = dict[str, object]


def page_data(row: PageResult, missing: str, findings: Sequence[AuditFinding]) -> Json:
    """The data of a row that is shown. missing: why it has no picture; "" if there is one. findings: of an audit, the
    weightiest first.

    shape: width and height in px. more: how many blocks are left out. A finding's text is what the table says, second
    what the second reader says.
    """
    failure = f"{row.error_kind}: " if row.error_kind else ""
    return {
        "shape": [row.width, row.height] if row.width and row.height else None,
        "message": f"{failure}{row.error_message}" if row.error_message else "",
        "missing": missing,
        "blocks": list(_blocks(row.blocks[:MAX_BLOCKS])),
        "more": max(0, len(row.blocks) - MAX_BLOCKS),
        "findings": [
            {
                "kind": found.kind,
                "block": found.block if found.block in range(len(row.blocks[:MAX_BLOCKS])) else None,
                "box": [round(edge, 5) for edge in found.bbox],
                "text": found.text[: letters_end(found.text, _MAX_FINDING_CHARACTERS)],
                "second": found.second_text[: letters_end(found.second_text, _MAX_FINDING_CHARACTERS)],
            }
            for found in findings
        ],
    }


def page_entry(chosen: ChosenRow, document: int, num_findings: int) -> Json:
    """A line of the list of pages. document: index in the list of sources."""
    row = chosen.row
    return {
        "document": document,
        "page": row.page_index,
        "pages": row.page_count,
        "doc": row.doc_id,
        "status": row.status,
        "quality": round(quality(row), 4) if row.status in ("ok", "degraded") else None,
        "ink_outside": _finite(row.ink_outside),
        "agreement": _finite(row.text_layer_agreement),
        "traits": [trait.replace("_", " ") for trait in sorted(traits_of(row) - {"doubtful"})],
        "position": chosen.position,
        "types": sorted({_type(block) for block in row.blocks[:MAX_BLOCKS]}),
        "findings": num_findings,
    }


def picture(image: Image.Image, dpi: float | None) -> str:
    """The page as WebP, in base64, about as large as it is read on a screen."""
    scale = min(DPI / dpi if dpi else 1.0, MAX_EDGE / max(image.size), 1.0)
    width, height = (max(1, round(edge * scale)) for edge in image.size)
    file = io.BytesIO()
    image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0).save(
        file, "WEBP", quality=_WEBP_QUALITY, method=2
    )
    return base64.b64encode(file.getvalue()).decode()


def _blocks(blocks: Sequence[Block]) -> Iterator[Json]:
    """Yield what the script is given of each block. html: its content as it should look. text: as the model wrote it;
    None if it has none. cut: how many characters of it are left out."""
    left = MAX_PAGE_CHARACTERS
    for block in blocks:
        content = block.content
        shown = None if content is None else content[: letters_end(content, min(_MAX_BLOCK_CHARACTERS, left))]
        left -= len(shown or "")
        yield {
            "type": _type(block),
            "box": [round(max(0.0, min(1.0, edge)), 5) for edge in block.bbox],
            "html": block_html(block.type, shown) if shown else "",
            "text": shown,
            "cut": len(content or "") - len(shown or ""),
            "confidence": _finite(block.confidence),
            "finish": block.finish_reason,
            "by_page": block.text_source == "page",
            "merge": block.merge_prev,
        }


def _type(block: Block) -> str:
    return block.type[: letters_end(block.type, _MAX_TYPE_CHARACTERS)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
