"""Our load client against public ones on the same server and prompts, in interleaved rounds.

A round runs every client once at each concurrency; rounds alternate the order, and the prefix cache
is emptied before each load. Compared are ratios within a round, so that a machine that grows slower
over the minutes takes nothing away; a figure is the distance of their geometric mean from 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtrit
from typing_extensions import override

from advisor.errors import Unavailable
from probes.vllm.engine import RunningEngine
from tests.bench.figures import Figure
from tests.fakes.paced_server import MODEL, Pace, paced_server
from tests.measure.contenders import (
    Contender,
    Load,
    Seen,
    Site,
    aiperf,
    ours,
    vllm_bench,
)
from tests.measure.engine import Installed
from tests.measure.progress import Say
from tests.measure.prompts import prompts
from tests.measure.rows import unmeasured

ROUNDS, STUB_ROUNDS = 5, 2
ALONE, LOADED = 1, 8
OURS = "ours"
VLLM_BENCH, SECOND = "vllm_bench", "second_client"
PUBLIC = (VLLM_BENCH, SECOND)
ENGINE_ROWS = ("ttft_error_at_1", "tpot_error", "throughput_error")
STUB_ROW = "stub_error"
# About 100 tokens a prompt; no prompt shares a block of the prefix cache with another.
LOADS = {
    ALONE: Load(prompts=prompts(4, 400), concurrency=ALONE, tokens=16),
    LOADED: Load(prompts=prompts(16, 400, first=4), concurrency=LOADED, tokens=16),
}
# On the stub the times are far above what a timer or a scheduler may take, and a load lasts long
# enough that what a client counts beside it (AIPerf: a tenth of a second) is under a hundredth.
STUB_LOADS = {
    ALONE: Load(prompts=prompts(4, 400), concurrency=ALONE, tokens=48),
    LOADED: Load(prompts=prompts(40, 400), concurrency=LOADED, tokens=48),
}
PACE = Pace(ttft_s=1.0, gap_s=0.04)
QUANTITIES = ("ttft", "tpot", "throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Geometric mean over rounds of ours over theirs, with a 95 % t interval over the rounds."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def off(self) -> float:
        """Distance from 1."""
        return abs(self.value - 1)

    @override
    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


# One round: what each client said, by client and concurrency.
Round = Mapping[tuple[str, int], Seen]


def ratio(rounds: Sequence[Round], client: str, concurrency: int, quantity: str) -> Ratio:
    """Ours over this client's, of "ttft", "tpot" or "throughput"."""
    logs = np.array(
        [
            math.log(
                value_of(seen[OURS, concurrency], quantity)
                / value_of(seen[client, concurrency], quantity)
            )
            for seen in rounds
        ]
    )
    mean, half = float(logs.mean()), math.inf
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
        half = float(stdtrit(len(logs) - 1, 0.975)) * error
    return Ratio(
        value=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        rounds=len(logs),
    )


def value_of(seen: Seen, quantity: str) -> float:
    """One of the three figures."""
    match quantity:
        case "ttft":
            return seen.ttft_s
        case "tpot":
            return seen.tpot_s
        case _:
            return seen.tokens_per_s


def engine_rows(rounds: Sequence[Round], client: str) -> Iterator[Figure]:
    """TTFT alone, TPOT and throughput alone and under load, against one client on an engine."""
    yield _figure(f"{client}_ttft_error_at_1", {ALONE: ratio(rounds, client, ALONE, "ttft")})
    for quantity in ("tpot", "throughput"):
        found = {load: ratio(rounds, client, load, quantity) for load in (ALONE, LOADED)}
        yield _figure(f"{client}_{quantity}_error", found)


def stub_row(rounds: Sequence[Round], client: str) -> Figure:
    """The worst of all quantities at both loads, on a server of known times."""
    found = {
        f"{quantity} at {load}": ratio(rounds, client, load, quantity)
        for quantity in QUANTITIES
        for load in (ALONE, LOADED)
    }
    return _figure(f"{client}_stub_error", found)


def _figure(name: str, found: Mapping[int, Ratio] | Mapping[str, Ratio]) -> Figure:
    parts = [f"{where}: {at}" for where, at in found.items()]
    rounds = next(iter(found.values())).rounds
    return Figure(
        name=name,
        value=max(at.off for at in found.values()),
        unit="fraction",
        better="lower",
        detail=f"ours over theirs, geometric mean of {rounds} rounds, by requests in flight: "
        + "; ".join(parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Finished rounds, and why a public client dropped out of them."""

    rounds: tuple[Round, ...]
    dropped: Mapping[str, str]


def play(
    site: Site,
    contenders: Mapping[str, Contender],
    loads: Mapping[int, Load],
    *,
    rounds: int,
    folder: Path,
    say: Say,
) -> Played:
    """The rounds one after another; each load has a folder of its own.

    A public client that fails drops out with its reason, the others play on; ours may not fail.
    """
    playing = dict(contenders)
    dropped: dict[str, str] = {}
    played: list[Round] = []
    for number in range(rounds):
        seen: dict[tuple[str, int], Seen] = {}
        for concurrency, load in loads.items():
            for name in in_turn(list(playing), number):
                place = folder / f"{number + 1}-{concurrency}-{name}"
                place.mkdir(parents=True)
                site.reset()
                try:
                    found = playing[name](site, load, place)
                except Unavailable as reason:
                    if name == OURS:
                        raise
                    dropped[name] = str(reason)
                    del playing[name]
                    say(f"{name} drops out: {reason}")
                    continue
                seen[name, concurrency] = found
                say(f"round {number + 1} of {rounds}, {concurrency} in flight, {name}: {found}")
        played.append(seen)
    return Played(rounds=tuple(played), dropped=dropped)


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: over the rounds every client is first and last."""
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]


def client_figures(
    engine: RunningEngine, found: Installed, *, folder: Path, say: Say
) -> list[Figure]:
    """Both public clients on the engine and on the stub."""
    contenders = {OURS: ours, VLLM_BENCH: vllm_bench(found.spec.interpreter), SECOND: aiperf()}
    site = Site(
        host=engine.host,
        port=engine.port,
        model=engine.served_model_name,
        tokenizer=found.model,
        reset=engine.reset_prefix_cache,
    )
    real = play(site, contenders, LOADS, rounds=ROUNDS, folder=folder / "on-engine", say=say)
    with paced_site(found.model) as stub:
        known = play(
            stub, contenders, STUB_LOADS, rounds=STUB_ROUNDS, folder=folder / "on-stub", say=say
        )
    return [figure for client in PUBLIC for figure in rows_of(client, real, known)]


def rows_of(client: str, real: Played, known: Played) -> list[Figure]:
    """The four rows of a public client; those that it dropped out of have no value."""
    rows: list[Figure] = []
    if client in real.dropped:
        rows += unmeasured([f"{client}_{row}" for row in ENGINE_ROWS], real.dropped[client])
    else:
        rows += engine_rows(real.rounds, client)
    if client in known.dropped:
        rows += unmeasured([f"{client}_{STUB_ROW}"], known.dropped[client])
    else:
        rows.append(stub_row(known.rounds, client))
    return rows


@contextmanager
def paced_site(tokenizer: Path) -> Iterator[Site]:
    """A server of known times: the same for every request, however many there are."""
    with paced_server(PACE) as server:
        yield Site(
            host=server.host,
            port=server.port,
            model=MODEL,
            tokenizer=tokenizer,
            reset=lambda: None,  # it has no cache
        )
