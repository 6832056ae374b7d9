"""Measurements: most print a table and write JSON, with the machine and commit next to the figures.

Run as `python -m benchmarks.FOLDER.NAME --help`; RESULTS.md has what they gave.

    speed       pages per second: the engine, whole runs, other programs
    memory      what a run holds over thousands of pages
    gpu         checks and measurements of a GPU, all in one command (`gpu.check`)
    attack      hostile documents and text, killed processes; damaged PDFs and images
    accuracy    how well a model reads pages whose content is known

The GPU benchmarks take --device, --out and --smoke (a size that runs on a CPU in seconds). What the folders share:

    true_shape    a checkpoint of a model's shape with random weights, whose answers never end on their own
    trace         the requests that pages make: image sizes, prompts, output lengths; `text_layer` reads them from PDFs
    replay        runs a trace through an engine
    loading       model and engine as the product makes them
    options       command-line options that several scripts share
    record        the table, the JSON and metadata about the machine; `timing` measures times, `clocks` a GPU's clock
"""

from pathlib import Path

import batchocr.engine.before_torch  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
QUICK_MODEL = ROOT / "tests" / "support" / "quick_model" / "checkpoint"
