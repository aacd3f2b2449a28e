"""A planted engine over real sockets: whether intervals of the product's client hold its truth.

One request in flight, so that each figure is known from the planted constants: a step takes a
fixed time and so much per token, drafts are accepted as planted. What sockets and timers add is in
the figures, as it is in those of a real engine.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.estimate import Estimate
from advisor.measurement.protocol.figures import steady_throughput
from advisor.measurement.protocol.intervals import ratio
from advisor.measurement.protocol.steady import inside, steady_window
from advisor.measurement.records import Outcome, RequestRecord
from advisor.measurement.request_acceptance import histogram_of_frames
from advisor.serving import Levers, NgramSpeculation, ServingConfig
from advisor.traffic.trace import Request
from probes.load.plan import LoadPlan, ReplayRule, load_plan
from probes.load.runner import run_load
from probes.vllm.server import start_engine
from tests.bench.figures import Figure
from tests.fakes.engines import chat_request, planted_plan
from tests.fakes.planted_replay import planted_core, replay
from tests.fakes.planted_truth import Acceptance, Truth
from tests.fakes.records import point

RUNS = 10
_REQUESTS = 20
_LONG = 400
_DRAFTED = 3
_SURVIVAL = (0.75, 0.5, 0.3)
_WORDS = 155
_RULE = ReplayRule(cap_tokens=24, default_tokens=24, fixed=True)
_CONFIG = ServingConfig(
    levers=Levers(speculative_config=NgramSpeculation(num_speculative_tokens=_DRAFTED))
)


def truth(seed: int, *, noise: float) -> Truth:
    """A step of 16 ms and 3 ms per token; the prefix cache finds nothing."""
    return Truth(
        seed=seed,
        base_step_s=0.016,
        token_s=0.003,
        knee_tokens=4096,
        noise=noise,
        prefix_hits=False,
        acceptance=(Acceptance(contains="", per_position=_SURVIVAL),),
    )


def socket_figures(runs: int = RUNS) -> list[Figure]:
    """`planted_coverage_sockets`: intervals that hold the truth, all quantities together."""
    wanted = _true()
    held: dict[str, list[bool]] = {name: [] for name in wanted}
    for run in range(runs):
        for name, interval in _measured(run).items():
            inside_it = interval is not None and interval.low <= wanted[name] <= interval.high
            held[name].append(inside_it)
    every = [found for some in held.values() for found in some]
    told = "; ".join(f"{name} {sum(some)} of {len(some)}" for name, some in held.items())
    return [
        Figure(
            name="planted_coverage_sockets",
            value=sum(every) / len(every),
            unit="fraction",
            better="higher",
            detail=f"{runs} runs of {_REQUESTS} requests; {told}",
        )
    ]


def _measured(run: int) -> dict[str, Estimate | None]:
    """One start of the engine and one load through the load client's own process."""
    noise = 0.02 + 0.06 * run / max(1, RUNS - 1)
    planted = truth(run, noise=noise)
    document = {
        "seed": planted.seed,
        "base_step_s": planted.base_step_s,
        "token_s": planted.token_s,
        "knee_tokens": planted.knee_tokens,
        "noise": noise,
        "prefix_hits": False,
        "acceptance": [{"contains": "", "per_position": list(_SURVIVAL)}],
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        start_engine(planted_plan(Path(folder), document, _CONFIG)) as engine,
    ):
        loaded = run_load(
            _plan(_requests(_REQUESTS, run), engine.host, engine.port, engine.served_model_name)
        )
    found = point(*loaded.records, concurrency=1, client=loaded.health)
    return {
        "TTFT median": found.intervals.get("ttft_s p50"),
        "TPOT mean": found.intervals.get("tpot_s mean"),
        "throughput": steady_throughput(
            loaded.records, steady_window(loaded.records, concurrency=1)
        ),
        "acceptance length": _acceptance(loaded.records),
    }


def _acceptance(records: Sequence[RequestRecord]) -> Estimate | None:
    """Tokens per verification step, by the tokens that each frame carried."""
    counts = [
        histogram_of_frames(record.frame_tokens)
        for record in records
        if record.outcome is Outcome.OK and record.frame_tokens
    ]
    tokens = [float(sum((1 + at) * n for at, n in enumerate(steps))) for steps in counts]
    return ratio(tokens, [float(sum(steps)) for steps in counts])


def _true() -> dict[str, float]:
    """From the same engine in virtual time, without noise, over many requests."""
    plan = _plan(_requests(_LONG, 10_000), "127.0.0.1", 1, "planted")
    records, _ = replay(planted_core(truth(7, noise=0.0), _CONFIG), plan)
    steady = inside(records, steady_window(records, concurrency=1))
    made = sum(record.output_tokens or 0 for record in records)
    length = _acceptance(records)
    return {
        "TTFT median": float(np.median([item.ttft_s for item in steady if item.ttft_s])),
        "TPOT mean": float(np.mean([item.tpot_s for item in steady if item.tpot_s])),
        "throughput": made / max(record.end_s for record in records),
        "acceptance length": length.value if length is not None else 0.0,
    }


def _requests(count: int, seed: int) -> list[Request]:
    """Different words each, the same number of them."""
    return [
        chat_request(index, " ".join(f"w{seed}-{index}-{word}" for word in range(_WORDS)))
        for index in range(count)
    ]


def _plan(requests: Sequence[Request], host: str, port: int, model: str) -> LoadPlan:
    return load_plan(requests, host=host, port=port, model=model, concurrency=1, rule=_RULE)
