"""The simulator against the reference scheduler of ../shared, step by step, on random workloads.

The reference (`reference/des_ref.py`) was checked against the installed vLLM scheduler. Workloads
are drawn as its own fuzz test draws them: small pools and shared prefixes, so that preemption and
prefix hits are frequent.
"""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from advisor.roofline.step.steptime import AffineStep, StepTables, TableLimits
from advisor.simulator import Load, SchedulerSettings, step_trace
from tests.bench.figures import Figure
from tests.validate.report import ValidationSet

BLOCK = 16
MODEL_LEN = 1024
SAMPLED = 900
WORKLOADS = 1000
SEED = 20261130
DUPLICATES = Path(__file__).parents[1] / "golden" / "scheduler" / "duplicates.json"
SECOND = AffineStep(fixed_s=1.0).tables(
    TableLimits(max_tokens=1024, max_requests=16, max_context=MODEL_LEN)
)

Step = tuple[int, dict[str, int], list[str], dict[str, int], int]
Asked = tuple[str, list[int], int, int, float]


@dataclass(frozen=True, slots=True)
class Workload:
    """Keyword arguments of the reference scheduler, and its requests."""

    engine: dict[str, Any]
    requests: list[Asked]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many workloads were compared, which differ, and how much happened in them."""

    workloads: int
    different: list[str]
    reference_wrong: list[str]
    preemptions: int
    hits: int
    steps: int


def reference(shared: Path) -> ModuleType:
    """The reference scheduler, loaded from its file."""
    path = shared / "reference" / "des_ref.py"
    spec = importlib.util.spec_from_file_location("des_ref", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tokens(first: int, count: int) -> list[int]:
    """Token ids as the reference makes them."""
    return [(first * 131 + place * 17) % 800 + 3 for place in range(count)]


def workloads(count: int, seed: int) -> Iterator[Workload]:
    """Random engines and requests, all of them there at step 0."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        small = rng.random() < 0.5
        blocks = int(rng.integers(13, 19) if small else rng.integers(12, 41))
        budget = int(rng.choice([32, 64, 128, 256]))
        engine = {
            "blocks": blocks,
            "mns": int(rng.integers(1, 9)),
            "mnbt": budget,
            "prefix": bool(rng.random() < 0.7),
            "policy": str(rng.choice(["fcfs", "fcfs", "priority"])),
            "thr": int(rng.choice([0, 0, 32])),
        }
        longest = min(120, (blocks - 2) * BLOCK - 70)
        requests = []
        for place in range(int(rng.integers(2, 11))):
            prompt = int(rng.integers(1, longest + 1))
            shared = int(rng.integers(0, prompt + 1))
            group = int(rng.integers(0, 3))
            text = tokens(group, shared) + tokens(50 + place, prompt - shared)
            output, priority = int(rng.integers(1, 61)), int(rng.integers(0, 3))
            requests.append((f"r{place}", text, output, priority, float(place)))
        yield Workload(engine, requests)


def chains(requests: list[Asked]) -> tuple[list[int], list[int]]:
    """Identifiers of whole blocks of prompt and output, equal for equal prefixes; and starts."""
    known: dict[tuple[int, ...], int] = {}
    ids: list[int] = []
    starts = [0]
    for _, prompt, output, *_ in requests:
        text = prompt + [SAMPLED] * output
        ends = range(BLOCK, len(text) + 1, BLOCK)
        ids += [known.setdefault(tuple(text[:end]), len(known)) for end in ends]
        starts.append(len(ids))
    return ids, starts


def as_load(requests: list[Asked]) -> Load:
    """The same requests for the simulator."""
    ids, starts = chains(requests)
    return Load(
        arrival_s=np.zeros(len(requests)),
        prompt_tokens=np.array([len(prompt) for _, prompt, *_ in requests]),
        output_tokens=np.array([output for _, _, output, *_ in requests]),
        priority=np.array([rest[0] if rest else 0 for _, _, _, *rest in requests]),
        block_ids=np.array(ids, np.int64),
        block_starts=np.array(starts, np.int64),
    )


def as_settings(engine: dict[str, Any]) -> SchedulerSettings:
    """The same engine for the simulator."""
    return SchedulerSettings(
        num_blocks=engine["blocks"],
        max_num_seqs=engine["mns"],
        max_num_batched_tokens=engine["mnbt"],
        max_model_len=MODEL_LEN,
        block_size=BLOCK,
        enable_prefix_caching=engine.get("prefix", True),
        scheduling_policy=engine.get("policy", "fcfs"),
        long_prefill_token_threshold=engine.get("thr", 0),
    )


def ours(workload: Workload, tables: StepTables = SECOND) -> list[Step]:
    """Steps of the simulator in the reference's form."""
    load, settings = as_load(workload.requests), as_settings(workload.engine)
    names = [request[0] for request in workload.requests]
    return [
        (
            place,
            {names[request]: new for request, new in step.scheduled.items()},
            sorted(names[request] for request in step.preempted),
            {names[request]: hit for request, hit in step.cached.items()},
            step.used_blocks,
        )
        for place, step in enumerate(step_trace(load, settings, tables))
    ]


def theirs(module: ModuleType, workload: Workload) -> list[Step]:
    """Steps of the reference."""
    requests = [module.R(*request) for request in workload.requests]
    engine = module.Sched(**workload.engine)
    found: list[Step] = module.trace(engine, requests, 5000)
    return found


def recorded(workload: Workload, steps: list[Step]) -> bool:
    """Whether the installed vLLM scheduler was recorded on this workload, with these steps.

    `des_ref.py` gives a second block of equal content no hash, vLLM does. Where that shows in a
    schedule, the scheduler itself decides (tests/golden/scheduler/duplicates.json).
    """
    lengths = [(len(prompt), output) for _, prompt, output, *_ in workload.requests]
    found = json.loads(json.dumps([step for step in steps if step[1]]))
    for trace in json.loads(DUPLICATES.read_text(encoding="utf-8"))["traces"]:
        asked = [(sum(n for _, n in row["prompt"]), row["output"]) for row in trace["requests"]]
        if asked == lengths and trace["settings"]["num_blocks"] == workload.engine["blocks"]:
            return bool(found == trace["steps"])
    return False


def mismatches(shared: Path, count: int = WORKLOADS, seed: int = SEED) -> Comparison:
    """Golden traces A to F and `count` random workloads; one that differs in any step counts."""
    module = reference(shared)
    different: list[str] = []
    wrong: list[str] = []
    preemptions = hits = steps = 0
    golden = json.loads((shared / "reference" / "golden_traces.json").read_text(encoding="utf-8"))
    for name, (engine, requests) in module.CASES.items():
        if json.loads(json.dumps(ours(Workload(engine, requests)))) != golden[name]:
            different.append(name)
    for place, workload in enumerate(workloads(count, seed)):
        mine, expected = ours(workload), theirs(module, workload)
        preemptions += sum(len(step[2]) for step in expected)
        hits += sum(len(step[3]) for step in expected)
        steps += len(expected)
        if mine != expected:
            told = wrong if recorded(workload, mine) else different
            told.append(f"workload {place} of seed {seed}")
    return Comparison(count + len(golden), different, wrong, preemptions, hits, steps)


def validation(measurements: Path) -> ValidationSet:
    """Schedules of the simulator against the reference's; nothing here is a measurement."""
    found = mismatches(measurements.parent.parent)
    corrected = "; ".join(found.reference_wrong)
    detail = (
        f"{found.workloads:,} workloads, {found.steps:,} steps, {found.preemptions:,} preemptions,"
        f" {found.hits:,} first admissions with prefix hits; differ: {found.different or 'none'}."
        f" Counted although the installed scheduler, recorded there, schedules as the simulator and"
        f" not as the reference: {corrected or 'none'}"
    )
    figure = Figure(
        name="simulator_reference_mismatches",
        value=len(found.different) + len(found.reference_wrong),
        unit="workloads",
        better="lower",
        detail=detail,
    )
    return ValidationSet(
        name="simulator",
        title="The simulator's schedules",
        what="every step of random workloads against the reference scheduler, and golden traces",
        points=(),
        figures=(figure,),
        not_modelled=(
            "recurrent states with prefix caching (refused)",
            "the block that EAGLE drops from a prefix hit",
            "drafts padded to a newcomer that decodes at once",
            "groups with blocks of different size",
            "encoder inputs, LoRA limits, KV transfer between engines",
        ),
    )
