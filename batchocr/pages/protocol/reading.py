"""What was read of a page, whichever family of models read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from batchocr.data import Block, Completion, Reading
from batchocr.pages.protocol.figures import shares_in_figures
from batchocr.pages.protocol.ink import Ink
from batchocr.pages.protocol.markdown import to_markdown


def with_answer(block: Block, completion: Completion) -> Block:
    """The block with what is known of the model's answer for it, but for the text."""
    return replace(
        block,
        confidence=completion.mean_probability,
        min_logprob=completion.min_logprob,
        tokens=completion.output_tokens,
        finish_reason=completion.finish_reason,
    )


def reading_of(
    blocks: Sequence[Block],
    layout: Completion,
    completions: Sequence[Completion],
    *,
    ink: Ink,
    shortfalls: Sequence[str],
    rescued_blocks: int,
) -> Reading:
    """The reading of the page with these blocks. completions: all but the one about the layout."""
    answers = [layout, *completions]
    ink_in_figures, writing_in_figures = shares_in_figures(blocks, ink)
    return Reading(
        markdown=to_markdown(blocks),
        blocks=tuple(blocks),
        image_tokens=sum(answer.image_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        error_message="; ".join(shortfalls) or None,
        rescued_blocks=rescued_blocks,
        ink_outside=ink.share_outside(block.bbox for block in blocks),
        ink_in_figures=ink_in_figures,
        writing_in_figures=writing_in_figures,
        layout_confidence=layout.mean_probability,
        layout_min_logprob=layout.min_logprob,
    )
