"""`python -P templated_command.py …`: the command `batchocr …`, with its workers and engines forked from templates.

For tests of whole runs, as processes: `tests.support.running.command` starts it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from batchocr.cli.start import main
from batchocr.processes import child
from tests.support.process_template import ProcessTemplates

if __name__ == "__main__":
    child.subprocess = ProcessTemplates()  # type: ignore[assignment]
    main()
