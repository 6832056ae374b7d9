"""A stand-in for vLLM: its offline engine's interface, as in 0.25.0, which answers a token a step to each request.

python -m tests.support.stand_in_vllm benchmarks.gpu.check --only plan --smoke --device cpu
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.gpu import peer_vllm


@dataclass
class EngineArgs:
    """Those of its fields that are used."""

    model: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    limit_mm_per_prompt: dict[str, int]
    enable_prefix_caching: bool
    mm_processor_cache_gb: float
    generation_config: str
    disable_log_stats: bool
    kv_cache_memory_bytes: int
    gpu_memory_utilization: float
    renderer_num_workers: int
    enforce_eager: bool = False

    def create_engine_config(self) -> EngineArgs:
        return self


@dataclass
class SamplingParams:
    """Those of its fields that are used."""

    temperature: float = 1.0
    ignore_eos: bool = False
    max_tokens: int | None = 16
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    output_kind: str = "cumulative"


class RequestOutputKind:
    FINAL_ONLY = "final only"


@dataclass
class CompletionOutput:
    text: str
    token_ids: list[int]


@dataclass
class RequestOutput:
    request_id: str
    outputs: list[CompletionOutput]
    finished: bool


class Renderer:
    """Gives images names, by which the engine tells them apart, as vLLM does without caches."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.api_process_rank = 0
        self._numbers = itertools.count(1)

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def render_cmpl(self, prompts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "type": "multimodal",
                "prompt_token_ids": self.tokenizer(prompt["prompt"])["input_ids"],
                "mm_hashes": {"image": [f"renderer{self.api_process_rank}-mm-{next(self._numbers)}-image-0"]},
                "size": prompt["multi_modal_data"]["image"].size,
            }
            for prompt in prompts
        ]


def renderer_from_config(config: EngineArgs) -> Renderer:
    return Renderer(AutoTokenizer.from_pretrained(config.model, local_files_only=True))


class LLMEngine:
    """Answers `max_num_seqs` requests at a time. `broken`: fails when it starts, as without a GPU."""

    broken = False

    def __init__(self, args: EngineArgs) -> None:
        if self.broken:
            raise RuntimeError("Engine core initialization failed")
        self.args = args
        self.renderer = renderer_from_config(args)
        self.added: list[tuple[dict[str, Any], SamplingParams]] = []
        self._left: dict[str, tuple[SamplingParams, list[int]]] = {}

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> LLMEngine:
        return cls(engine_args)

    def add_request(self, request_id: str, prompt: dict[str, Any], params: SamplingParams) -> str:
        assert isinstance(request_id, str)
        self.added.append((prompt, params))
        self._left[request_id] = params, []
        return request_id

    def has_unfinished_requests(self) -> bool:
        return bool(self._left)

    def step(self) -> list[RequestOutput]:
        answers = []
        for request_id, (params, token_ids) in list(self._left.items())[: self.args.max_num_seqs]:
            token_ids.append(7)
            if len(token_ids) == params.max_tokens:
                del self._left[request_id]
                answers.append(RequestOutput(request_id, [CompletionOutput("answer", token_ids)], finished=True))
        return answers


def modules() -> dict[str, ModuleType]:
    """What `import vllm` finds if these are put into `sys.modules`, in processes that are forked from this one, too."""
    package, sampling, renderers = (ModuleType(name) for name in ("vllm", "vllm.sampling_params", "vllm.renderers"))
    package.__spec__ = ModuleSpec("vllm", None)
    for part in (EngineArgs, SamplingParams, LLMEngine):
        setattr(package, part.__name__, part)
    sampling.RequestOutputKind = RequestOutputKind
    renderers.renderer_from_config = renderer_from_config
    return {module.__name__: module for module in (package, sampling, renderers)}


def main(benchmark: str, arguments: list[str]) -> None:
    """Run a benchmark that compares with vLLM."""
    sys.modules |= modules()
    peer_vllm.START_METHOD = "fork"
    torch.set_num_threads(1)  # threads do not survive a fork
    import_module(benchmark).main(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
