"""Campaigns against the tool: hostile documents, hostile text, killed processes.

    python -m benchmarks.attack                       all of them, in full: hours
    nice python -m benchmarks.attack cut --count 500  one of them, smaller

What goes wrong is counted and its input kept beside the figures, in a folder named after them. `mutated` and `cut` are
documents that a real worker opens and renders; `markdown` is hostile text, shown to renderers that people use; `kills`
is of the processes of whole runs. `nights` are commands that write a table in each form that it has, killed at one of
their steps while others read, and sometimes while a second one writes. `cluster` is of actors, machines and drivers of
`batchocr ray`, and needs Ray. All follows from the seed but the moments at
which processes are killed.

Damage that is no attack has scripts of its own here: `damaged_pdfs` and `damaged_images` count what it costs in
silence, and `sound` counts false alarms.
"""
