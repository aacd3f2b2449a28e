"""Figures of the prefix analysis on the Mooncake traces (../shared)."""

import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from advisor.traffic.figures import PrefixReuse
from advisor.traffic.reuse.tally import BlockTally
from advisor.traffic.trace import Request, RequestKind
from tests.bench.figures import Figure

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traffic" / "mooncake_fast25"
BLOCK_TOKENS = 512
ABSENT = f"no {TRACES.name} beside the checkout"
CEILINGS = {"conversation": 37.4, "synthetic": 65.1}  # % of prompt tokens, from their README


def mooncake(trace: Path) -> list[Request]:
    """Requests of a trace: lengths and ids of 512-token blocks."""
    with trace.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Request(
            id=f"r{place}",
            index=place,
            line=place + 1,
            kind=RequestKind.LENGTHS,
            prompt_tokens=row["input_length"],
            output_tokens=row["output_length"],
            block_ids=tuple(row["hash_ids"]),
        )
        for place, row in enumerate(rows)
    ]


@cache
def analysed(name: str, traces: Path = TRACES) -> tuple[PrefixReuse, float, int]:
    """All figures of a trace, CPU seconds of the analysis without parsing, and its requests."""
    requests = mooncake(traces / f"{name}_trace.jsonl")
    lengths = np.array([request.prompt_tokens for request in requests])
    before = time.process_time()
    tally = BlockTally(BLOCK_TOKENS, file_block_tokens=BLOCK_TOKENS)
    for request in requests:
        tally.add(request, None)
    found = tally.finish(range(len(requests)), [None] * len(requests), lengths).reuse
    spent_s = time.process_time() - before
    if found is None:
        raise ValueError(f"{name}: no block ids")
    return found, spent_s, len(requests)


def figures() -> Iterator[Figure]:
    """Time, ceilings and their error; without ../shared they are not measured."""
    yield _timed()
    if not TRACES.is_dir():
        yield _error(None, ABSENT)
        return
    shares = {name: 100 * analysed(name)[0].ceiling.value for name in CEILINGS}
    for name, share in shares.items():
        yield Figure(
            name=f"mooncake_{name}_ceiling",
            value=share,
            unit="% of prompt tokens",
            better="higher",
            detail=f"an unlimited cache; {CEILINGS[name]} % in the trace's README",
        )
    apart = {name: abs(share - CEILINGS[name]) for name, share in shares.items()}
    yield _error(
        max(apart.values()), "; ".join(f"{name}: {points:.2f}" for name, points in apart.items())
    )


def _error(value: float | None, detail: str) -> Figure:
    """The larger distance of a ceiling from the stated one."""
    return Figure(
        name="mooncake_ceiling_error", value=value, unit="points", better="lower", detail=detail
    )


def _timed() -> Figure:
    value, detail = None, ABSENT
    if TRACES.is_dir():
        found, value, requests = analysed("conversation")
        detail = (
            f"CPU time for {requests} requests and {found.distinct_blocks} distinct blocks:"
            f" ceiling, {len(found.curve)} capacities by stack distances, {len(found.lru)} replays;"
            " without parsing"
        )
    return Figure(
        name="prefix_analysis_mooncake_s", value=value, unit="s", better="lower", detail=detail
    )
