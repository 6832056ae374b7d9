"""Speed, measured: each script prints a table and writes JSON, with the machine and the commit beside the figures.

Run as `python -m benchmarks.NAME --help`. Those about a GPU take --device, --out and --smoke (a size that runs on a CPU
in seconds); `gpu_check` runs them all, after every correctness check. `cpu_vs_transformers`, `memory`, `journal`,
`kernel_resources` and `accuracy` need no GPU and are run by themselves. What they share:

    true_shape    a checkpoint of MinerU2.5's shape with random weights, whose answers never end by themselves
    trace         which requests pages make: image sizes, prompts, output lengths; `text_layer` reads them from PDFs
    replay        a trace through batchocr's engine; `peer_transformers` and `peer_vllm` send it through others
    loading       model and engine as the product makes them; `variants` changes one thing about them
    options       flags that several have
    record        the table, the JSON, the machine; `timing` the clock
"""

import batchocr  # noqa: F401 (ahead of torch: it tells OpenMP's threads how to wait)
