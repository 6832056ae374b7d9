"""Campaigns against the tool: hostile documents, hostile text, flipped bits, killed processes.

    python -m benchmarks.attack                       all of them, in full: hours
    nice python -m benchmarks.attack cut --count 500  one of them, smaller

What goes wrong is counted and its input kept beside the figures, in a folder named after them. `mutated` and `cut` are
documents that a real worker opens and renders; `markdown` is hostile text, shown to renderers that people use;
`journal` and `parquet` are files of a run with a flipped bit; `kills` are of the processes of whole runs. All follows
from the seed but the moments at which processes are killed.
"""
