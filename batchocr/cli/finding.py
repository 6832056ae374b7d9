"""What `batchocr doctor` reports a line of."""

from __future__ import annotations

from dataclasses import dataclass

from batchocr.errors import ExitCode


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked. ok: None if it is neither good nor bad. exit_code: of a run that fails because of
    it."""

    name: str
    value: str
    ok: bool | None = None
    exit_code: ExitCode = ExitCode.USAGE
