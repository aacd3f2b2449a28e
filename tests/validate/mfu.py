"""vLLM's own estimator of FLOP and bytes (``--enable-mfu-metrics``) against ours, on a real run."""

import http.client
import json
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from advisor.errors import RooftuneError
from advisor.llm import ModelShape, read_config
from advisor.llm.feed_forward import DenseFeedForward
from advisor.llm.mixers import Attention
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.served import ServedModel
from advisor.roofline.step.work import Work, served_alone, work
from advisor.serving import FunctionalSettings, Levers, ServingConfig
from probes.engines import Interpreter, run_script
from probes.settings import engine_environment
from probes.vllm.command import EngineSpec
from probes.vllm.engine import RunningEngine
from probes.vllm.flags import read_schema
from probes.vllm.server import StartPlan, start_engine
from tests.bench.figures import Figure
from tests.validate.report import ValidationSet

ROOT = Path(__file__).parents[2]
FLAG = "--enable-mfu-metrics"
CHUNK = 256
DTYPE = "float32"
# The empty step after the last answer is counted after the answer was sent.
SETTLE_S = 0.5
# Prompt and output tokens: one after another, then all of the second group at once.
ALONE = ((40, 24), (300, 12), (700, 4))
TOGETHER = ((30, 20), (30, 20), (60, 20), (100, 12))
COUNTERS = {
    "flops": "vllm:estimated_flops_per_gpu_total",
    "read": "vllm:estimated_read_bytes_per_gpu_total",
    "written": "vllm:estimated_write_bytes_per_gpu_total",
    "steps": "vllm:iteration_tokens_total_count",
}
NOTES = (
    (
        "Accounted for: vLLM counts prompt attention without its causal half. Distinct experts, its"
        " other known deviation, do not occur in a dense model."
    ),
    (
        "Also accounted for: vLLM counts the weights of a step that computes nothing, one each time"
        " the engine runs empty (scheduler.update_from_output; seen in the counters)."
    ),
    (
        "On the same terms: vLLM counts the bytes of the activation function but not of norms,"
        " rotations and residuals (8 h per token and layer). It reads queries once more; we do not."
    ),
    "Neither counts the lookup of embeddings; both run the head on one row per prompt chunk.",
    "vLLM's count of iterations leaves out steps that only compute a part of a prompt.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """vLLM's counters over one load: `steps` that computed, `empty_steps` that did not."""

    flops: float
    bytes: float
    steps: int
    empty_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both estimates of the same run, ours on vLLM's terms and as it is."""

    theirs: Counted
    ours: Work
    flops: float
    bytes: float

    @property
    def flops_error(self) -> float:
        """Relative, deviations accounted for."""
        return abs(self.flops / self.theirs.flops - 1)

    @property
    def bytes_error(self) -> float:
        """Relative, on the same terms."""
        return abs(self.bytes / self.theirs.bytes - 1)


def start_plan(spec: EngineSpec, model: Path, log: Path) -> StartPlan:
    """The product's own start, with the flag put before its arguments."""
    schema = replace(spec.schema, serve_module=(*spec.schema.serve_module, FLAG))
    token = f"rt-{uuid.uuid4().hex[:12]}"
    return StartPlan(
        engine=replace(spec, schema=schema),
        config=ServingConfig(
            functional=FunctionalSettings(
                max_model_len=1024, enforce_eager=True, kv_cache_space_gib=1
            ),
            levers=Levers(dtype=DTYPE, max_num_batched_tokens=CHUNK, enable_prefix_caching=False),
        ),
        model_path=str(model),
        model_bytes=(model / "model.safetensors").stat().st_size,
        served_model_name=token,
        token=token,
        log_path=log,
        base_env=engine_environment(),
    )


def counters(engine: RunningEngine) -> dict[str, float]:
    """The counters now, 0 where none was counted yet."""
    connection = http.client.HTTPConnection(engine.host, engine.port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in COUNTERS.values()
    }
    return {key: found.get(name, 0.0) for key, name in COUNTERS.items()}


def send(engine: RunningEngine, prompt: Sequence[int], output_tokens: int) -> None:
    """One request of known lengths; it must yield just so many tokens."""
    body = {
        "model": engine.served_model_name,
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
    }
    connection = http.client.HTTPConnection(engine.host, engine.port, timeout=120)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    usage = json.loads(connection.getresponse().read())["usage"]
    connection.close()
    if (usage["prompt_tokens"], usage["completion_tokens"]) != (len(prompt), output_tokens):
        raise RuntimeError(f"the load was not served as sent: {usage}")


def counted_over_the_load(engine: RunningEngine) -> Counted:
    """vLLM's estimate of the load, all of its requests; the engine runs empty between them.

    Requests that come together have prompts that one step can take, so that each step yields a
    token and is counted; the steps of a request alone are known.
    """
    before = counters(engine)
    for index, (prompt, output) in enumerate(ALONE):
        send(engine, range(1000 * index + 100, 1000 * index + 100 + prompt), output)
        time.sleep(SETTLE_S)
    between = counters(engine)
    with ThreadPoolExecutor(len(TOGETHER)) as pool:
        sent = [
            pool.submit(
                send, engine, range(5000 + 500 * index, 5000 + 500 * index + prompt), output
            )
            for index, (prompt, output) in enumerate(TOGETHER)
        ]
        for one in sent:
            one.result()
    time.sleep(SETTLE_S)
    after = counters(engine)
    return Counted(
        flops=after["flops"] - before["flops"],
        bytes=sum(after[name] - before[name] for name in ("read", "written")),
        steps=len(list(steps_of(ALONE))) + round(after["steps"] - between["steps"]),
        empty_steps=len(ALONE) + 1,
    )


def steps_of(requests: Sequence[tuple[int, int]]) -> Iterator[StepBatch]:
    """Steps of every request alone: together they share the reading of weights, nothing else."""
    for prompt, output in requests:
        yield from served_alone(prompt, output, max_num_batched_tokens=CHUNK)


def comparison(model: ModelShape, theirs: Counted) -> Comparison:
    """Ours beside theirs; weights are read once in each of the steps that the engine ran."""
    served = ServedModel(model=model, dtype=DTYPE)
    steps = list(steps_of((*ALONE, *TOGETHER)))
    ours = work(served, steps)
    weights = ours.weight_bytes / ours.steps
    ours = replace(ours, steps=theirs.steps, weight_bytes=weights * theirs.steps)
    traffic = (
        ours.weight_bytes + ours.cache_read_bytes + ours.cache_written_bytes + ours.product_bytes
    )
    return Comparison(
        theirs=theirs,
        ours=ours,
        flops=ours.flops + missing_half_flops(model, steps),
        bytes=traffic + activation_function_bytes(served, steps) + weights * theirs.empty_steps,
    )


def missing_half_flops(model: ModelShape, steps: Sequence[StepBatch]) -> float:
    """What vLLM counts too much: keys of later positions than the query's."""
    surplus = sum(p.new_tokens * (p.new_tokens - 1) / 2 for batch in steps for p in batch.prefills)
    return surplus * sum(
        group.count * 2 * group.mixer.heads * (group.mixer.head_dim + group.mixer.values)
        for group in model.layers
        if isinstance(group.mixer, Attention)
    )


def activation_function_bytes(served: ServedModel, steps: Sequence[StepBatch]) -> float:
    """Gate and up read, their product written: 3 I per token and layer."""
    width = sum(
        group.count * 3 * group.feed_forward.intermediate
        for group in served.model.layers
        if isinstance(group.feed_forward, DenseFeedForward)
    )
    return width * served.element_bytes * sum(batch.tokens for batch in steps)


def shape_of(model: Path) -> ModelShape:
    """The checkpoint's shape."""
    return read_config(json.loads((model / "config.json").read_text(encoding="utf-8")))


@contextmanager
def engine_here() -> Iterator[tuple[RunningEngine, Path]]:
    """The installed engine on the demo model; `RooftuneError` where one of them is missing."""
    python = ROOT / ".venv-engine" / "bin" / "python"
    models = [path.parent for path in sorted(ROOT.glob(".rooftune*/models/demo/config.json"))]
    if not python.exists() or not models:
        raise RooftuneError("no engine environment or no demo model: make setup installs both")
    interpreter = Interpreter(python=python)
    dumped = interpreter.recorded_flags() or run_script(
        interpreter.script("flags"), env=engine_environment(), timeout_s=120, stopped=lambda: False
    )
    spec = EngineSpec(interpreter=str(python), launcher=None, schema=read_schema(dumped))
    with tempfile.TemporaryDirectory() as folder:
        plan = start_plan(spec, models[0], Path(folder) / "engine.log")
        with start_engine(plan) as engine:
            yield engine, models[0]


def figures(found: Comparison | None, why: str) -> tuple[Figure, ...]:
    """The two errors; without a run, the reason."""
    detail = why
    if found is not None:
        raw = found.ours.flops / found.theirs.flops - 1
        plain = found.ours
        moved = (
            plain.weight_bytes
            + plain.cache_read_bytes
            + plain.cache_written_bytes
            + plain.product_bytes
            + plain.elementwise_bytes
        )
        detail = (
            f"{plain.steps} steps; before any accounting {raw:+.3f} of the FLOP and"
            f" {moved / found.theirs.bytes - 1:+.3f} of the bytes"
        )
    values = (None, None) if found is None else (found.flops_error, found.bytes_error)
    return tuple(
        Figure(name=name, value=value, unit="fraction", better="lower", detail=detail)
        for name, value in zip(("mfu_flops_error", "mfu_bytes_error"), values, strict=True)
    )


def validation(measurements: Path) -> ValidationSet:
    """Start the engine, send the known load, stop it; no figure where there is no engine."""
    found, why = None, ""
    try:
        with engine_here() as (engine, model):
            found = comparison(shape_of(model), counted_over_the_load(engine))
    except RooftuneError as error:
        why = str(error)
    return ValidationSet(
        name="mfu",
        title="vLLM's own estimator",
        what=(
            "FLOP and bytes that vLLM counts on a real CPU run (SmolLM2-135M, float32) against the "
            "sum over the steps of the same load."
        ),
        points=(),
        figures=figures(found, why),
        notes=NOTES,
    )
