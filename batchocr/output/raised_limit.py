"""A run that goes on with a higher --max-new-tokens: what the lower one has cut is to be read again."""

from __future__ import annotations

from batchocr.data import AT_TOKEN_LIMIT, PageResult
from batchocr.output.schema import READABLE_VERSIONS, RunFacts, fingerprint_of_settings

_SETTING = "max_new_tokens"


def lower_limit(found: RunFacts, facts: RunFacts) -> int | None:
    """The --max-new-tokens of the rows found, if this run's is higher and nothing else differs; else None."""
    there, here = found.settings.get(_SETTING, ""), facts.settings.get(_SETTING, "")
    if not (there.isdecimal() and here.isdecimal() and int(there) < int(here)):
        return None
    raised = fingerprint_of_settings({**found.settings, _SETTING: here})
    same = raised == facts.settings_fingerprint and found.schema_version in READABLE_VERSIONS
    return int(there) if same else None


def said_of(limit: int, facts: RunFacts) -> str:
    """What to tell the user of a run with these facts, which goes on from rows with this lower limit."""
    return f"what --max-new-tokens {limit} cut is read again with {facts.settings[_SETTING]}"


def was_cut(result: PageResult, limit: int) -> bool:
    """Whether a limit of so many tokens for a block has cut the page: a block ended there, or was found to loop only
    when it got there, as tables are."""
    if result.status != "degraded":
        return False
    looped = (block.output_tokens or 0 for block in result.blocks if block.finish_reason == "repetition")
    return AT_TOKEN_LIMIT in (result.error_message or "") or any(tokens >= limit for tokens in looped)
