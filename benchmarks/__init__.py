"""Speed measurements: most scripts print a table and write JSON, with the machine and commit next to the figures.

Run as `python -m benchmarks.NAME --help`. The GPU benchmarks take --device, --out and --smoke (a size that runs on a
CPU in seconds); `gpu_check` runs them all, together with the correctness checks. `cpu_vs_transformers`, `memory`,
`journal`, `routing`, `duplicates`, `kernel_resources`, `launches`, `host_step` and `accuracy` need no GPU and are run
separately; so are the campaigns of `attack`, which count faults. What they share:

    true_shape    a checkpoint of MinerU2.5's shape with random weights, whose answers never end on their own
    trace         the requests that pages make: image sizes, prompts, output lengths; `text_layer` reads them from PDFs
    replay        runs a trace through batchocr's engine; `peer_transformers` and `peer_vllm` run it through others
    loading       model and engine as the product makes them; `variants` changes one thing about them
    foreseen      answers that are known: what `forced_engine` has the model write, and `instant_engine` gives at once
    recorded      pages for workers that do no work (`replaying_worker`), in the runs of `routing` (`routed_run`)
    options       command-line options that several scripts share
    record        the table, the JSON and facts about the machine; `timing` measures times
"""

import batchocr.engine.before_torch  # noqa: F401
