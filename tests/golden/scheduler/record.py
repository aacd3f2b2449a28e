"""Record what the installed vLLM's scheduler does: ``python -m tests.golden.scheduler.record``.

Run by the engine's interpreter from the repository's root. Only the scheduler runs, on planted
outputs: no engine starts. ``--check`` compares with the recorded files instead of writing them.

A step is ``[t, scheduled tokens by request, preempted requests, cached tokens of requests admitted
for the first time, used blocks after scheduling]``. `t` counts calls of ``schedule()``; steps that
schedule nothing are left out. A request of step t is known before that call. Each sampled token
is 900. `accepted[j]` is what the j-th verification of a request yields, one token and its accepted
drafts, at most one more than was scheduled; 0 plants a step without a draft. An entry is used by a
step of a request that still runs and whose step before sampled a token. What the cases do not set
is the engine's default, e.g. `prefix_cache_retention_interval` 0: groups with a window or a state
keep a prefix at its last reusable position only.
"""

import argparse
import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import (
    CacheConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tests.golden.scheduler.cases import FILES, prompt_tokens

HERE = Path(__file__).parent
MODEL = str(HERE / "model")
SAMPLED = 900
MAX_STEPS = 3000


def speculative_config(wanted: dict[str, Any] | None, model: ModelConfig) -> Any:
    if wanted is None:
        return None
    words = {"num_speculative_tokens": wanted["num_speculative_tokens"]}
    if wanted["schedule"]:
        words["num_speculative_tokens_per_batch_size"] = wanted["schedule"]
    if wanted["method"] == "draft_model":
        words |= {"method": "draft_model", "model": MODEL}
    else:
        words |= {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    return SpeculativeConfig(
        target_model_config=model, target_parallel_config=ParallelConfig(), **words
    )


def cache_group(group: dict[str, Any], settings: dict[str, Any]) -> KVCacheGroupSpec:
    size = settings["block_size"]
    attention = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    if group["kind"] == "full":
        return KVCacheGroupSpec(["full"], FullAttentionSpec(block_size=size, **attention))
    if group["kind"] == "sliding_window":
        spec = SlidingWindowSpec(block_size=size, sliding_window=group["window"], **attention)
        return KVCacheGroupSpec([f"window{group['window']}"], spec)
    aligned = settings["enable_prefix_caching"]
    drafts = settings["speculation"]["num_speculative_tokens"] if settings["speculation"] else 0
    spec = MambaSpec(
        block_size=size if aligned else settings["max_model_len"],
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align" if aligned else "none",
        num_speculative_blocks=drafts,
    )
    return KVCacheGroupSpec(["state"], spec)


def scheduler_of(settings: dict[str, Any]) -> tuple[Scheduler, int]:
    """The scheduler and the size of the blocks that are hashed."""
    length = settings["max_model_len"]
    model = ModelConfig(
        model=MODEL, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=length, seed=0
    )
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            max_num_seqs=settings["max_num_seqs"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            max_model_len=length,
            enable_chunked_prefill=settings["enable_chunked_prefill"],
            is_encoder_decoder=False,
            policy=settings["scheduling_policy"],
            long_prefill_token_threshold=settings["long_prefill_token_threshold"],
            watermark=settings["watermark"],
            async_scheduling=settings["async_scheduling"],
        ),
        cache_config=CacheConfig(
            block_size=settings["block_size"],
            enable_prefix_caching=settings["enable_prefix_caching"],
        ),
        speculative_config=speculative_config(settings["speculation"], model),
    )
    # What a start of the engine makes of the flags is not asked here: the settings are the case.
    config.scheduler_config.async_scheduling = settings["async_scheduling"]
    config.scheduler_config.enable_chunked_prefill = settings["enable_chunked_prefill"]
    config.cache_config.enable_prefix_caching = settings["enable_prefix_caching"]
    config.cache_config.num_gpu_blocks = settings["num_blocks"]
    groups = [cache_group(group, settings) for group in settings["groups"]]
    if any(isinstance(group.kv_cache_spec, MambaSpec) for group in groups):
        mode = "align" if settings["enable_prefix_caching"] else "none"
        config.cache_config.mamba_cache_mode = mode
    cache = KVCacheConfig(
        num_blocks=settings["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=config.cache_config.prefix_cache_retention_interval,
    )
    init_none_hash(sha256)
    block_size, hashed = resolve_kv_cache_block_sizes(cache, config)
    kind = AsyncScheduler if settings["async_scheduling"] else Scheduler
    made = kind(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_size,
        hash_block_size=hashed,
        log_stats=True,
    )
    return made, hashed


class Recorder:
    """One workload on one scheduler."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.settings = case["settings"]
        self.scheduler, self.hashed = scheduler_of(self.settings)
        self.arrivals: dict[int, list[dict[str, Any]]] = {}
        for row in case["requests"]:
            self.arrivals.setdefault(row["step"], []).append(row)
        self.requests: dict[str, Request] = {}
        self.planted: dict[str, deque[int]] = {}
        self.proposed: set[str] = set()
        self.steps: list[Any] = []

    def add(self, row: dict[str, Any], order: int) -> None:
        sampling = SamplingParams(max_tokens=row["output"], ignore_eos=True, temperature=0)
        request = Request(
            request_id=row["id"],
            prompt_token_ids=prompt_tokens(row["prompt"]),
            sampling_params=sampling,
            pooling_params=None,
            priority=row["priority"],
            arrival_time=float(order),
            block_hasher=get_request_block_hasher(self.hashed, sha256),
        )
        self.requests[row["id"]] = request
        self.planted[row["id"]] = deque(row.get("accepted", ()))
        self.scheduler.add_request(request)

    def run(self) -> list[Any]:
        in_flight: deque[tuple[Any, ModelRunnerOutput]] = deque()
        depth = 2 if self.settings["async_scheduling"] else 1
        added = 0
        for step in range(MAX_STEPS):
            for row in self.arrivals.get(step, []):
                self.add(row, added)
                added += 1
            output = self.scheduler.schedule()
            if output.num_scheduled_tokens:
                self.note(step, output)
                in_flight.append((output, self.planted_output(output)))
            if len(in_flight) == depth or (in_flight and not output.num_scheduled_tokens):
                self.finish(*in_flight.popleft())
            elif not in_flight and all(known <= step for known in self.arrivals):
                break
        else:
            raise RuntimeError("the workload did not end")
        return self.steps

    def note(self, step: int, output: Any) -> None:
        pool = self.scheduler.kv_cache_manager.block_pool
        used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        first = {
            new.req_id: new.num_computed_tokens
            for new in output.scheduled_new_reqs
            if new.num_computed_tokens and self.requests[new.req_id].num_preemptions == 0
        }
        preempted = sorted(output.preempted_req_ids or [])
        self.steps.append([step, dict(output.num_scheduled_tokens), preempted, first, used])
        self.proposed -= set(preempted)

    def planted_output(self, output: Any) -> ModelRunnerOutput:
        """Tokens of a step: one, and with a draft those that the case accepts."""
        ids = list(output.num_scheduled_tokens)
        drafts = output.scheduled_spec_decode_tokens
        sampled: list[list[int]] = []
        for name in ids:
            if self.requests[name].is_prefill_chunk:
                sampled.append([])
                self.proposed.discard(name)
                continue
            scheduled = len(drafts.get(name, ()))
            entry = 1
            if name in self.proposed and self.planted[name]:
                entry = self.planted[name].popleft()
            sampled.append([SAMPLED] * max(1, min(entry, 1 + scheduled)))
            self.proposed.add(name)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={name: index for index, name in enumerate(ids)},
            sampled_token_ids=sampled,
        )

    def finish(self, output: Any, planted: ModelRunnerOutput) -> None:
        self.scheduler.update_from_output(output, planted)
        if self.settings["speculation"] is None or self.settings["async_scheduling"]:
            return
        drafted = [
            name
            for name, tokens in zip(planted.req_ids, planted.sampled_token_ids, strict=True)
            if tokens
        ]
        proposals = [
            []
            if self.planted[name] and self.planted[name][0] == 0
            else [SAMPLED] * output.num_spec_tokens_to_schedule
            for name in drafted
        ]
        self.scheduler.update_draft_token_ids(DraftTokenIds(drafted, proposals))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="*", help="names of cases")
    options = parser.parse_args()
    changed = []
    for name, cases in FILES.items():
        path = HERE / f"{name}.json"
        if options.check:
            recorded = {trace["name"]: trace for trace in json.loads(path.read_text())["traces"]}
            changed += [
                case["name"]
                for case in cases
                if (options.only is None or case["name"] in options.only)
                and {**case, "steps": Recorder(case).run()} != recorded[case["name"]]
            ]
        else:
            traces = [{**case, "steps": Recorder(case).run()} for case in cases]
            document = {"vllm": vllm.__version__, "traces": traces}
            path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    sys.stdout.write(json.dumps({"vllm": vllm.__version__, "changed": changed}) + "\n")


if __name__ == "__main__":
    main()
