"""`python -m tests.bench`: the figures that the issues ask for, from one run of the demo.

Writes `build/bench.json` and `build/bench.md`, exits 1 when a row is not ok. With a file name the
result of an earlier `rooftune demo --json` is read instead of running it.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench import client, reuse, simulator, traffic
from tests.bench.figures import Figure, write_figures
from tests.fakes.planted_ladder import BOUND, KINDS, repeated

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
SLOW, FAST = 16, 1
LADDERS = 200
MOST = 0.9  # of the ladders of one kind must have their binding resource named right


def demo_result() -> dict[str, Any]:
    """What `rooftune demo --json` says, kept in `build/demo.json`."""
    BUILD.mkdir(exist_ok=True)
    command = [str(Path(sys.executable).parent / "rooftune"), "demo", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    (BUILD / "demo.json").write_bytes(done.stdout)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def effects(result: dict[str, Any], technique: str) -> dict[int, dict[str, Any]]:
    """Effects of a technique by requests in flight."""
    for verdict in result["recommendation"]["verdicts"]:
        if verdict["technique"] == technique:
            return {effect["concurrency"]: effect for effect in verdict["effects"]}
    return {}


def gain(effect: dict[str, Any] | None, end: str = "value") -> float | None:
    """Measured ratio of an effect, None when it was not measured."""
    measured = (effect or {}).get("measured")
    return None if measured is None else measured[end]


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    """One per figure of the issues that the demo's study measures."""
    advice = result["recommendation"]
    batching = effects(result, "continuous_batching").get(SLOW)
    yield Figure(
        name="continuous_batching_ratio",
        value=gain(batching),
        unit="x",
        better="higher",
        detail=f"mean prompt {advice['mean_prompt_tokens']:.0f} tokens, mean output"
        f" {advice['mean_output_tokens']:.0f}, interval {gain(batching, 'low')} to"
        f" {gain(batching, 'high')}",
    )
    ngram = effects(result, "ngram_speculation")
    alone, loaded = gain(ngram.get(FAST)), gain(ngram.get(SLOW))
    yield Figure(
        name="ngram_gain_at_1_minus_gain_at_16",
        value=None if alone is None or loaded is None else alone - loaded,
        unit="fraction",
        better="higher",
        detail=f"gain {alone} at 1 and {loaded} at 16 requests in flight",
    )
    prose = ngram.get(FAST, {}).get("by_class", {}).get("prose")
    yield Figure(
        name="ngram_gain_prose_interval_low",
        value=None if prose is None else prose["low"] - 1,
        unit="fraction",
        better="lower",
        detail=f"TPOT gain of the prose class at 1 in flight: {prose and prose['value']}",
    )
    yield from static_figures(result)
    yield Figure(
        name="demo_after_installation",
        value=result["seconds"]["total"],
        unit="s",
        better="lower",
        detail=json.dumps(result["seconds"]),
    )


def static_figures(result: dict[str, Any]) -> Iterator[Figure]:
    """Continuous over static batching, and how unequal the outputs of those requests are."""
    effect = next(iter(effects(result, "continuous_over_static").values()), None)
    yield Figure(
        name="continuous_over_static_ratio",
        value=gain(effect),
        unit="x",
        better="higher",
        detail=f"interval {gain(effect, 'low')} to {gain(effect, 'high')}, same requests in both",
    )
    unequal = [
        point["longest_output_tokens"] * point["succeeded"] / point["output_tokens"]
        for trial in result["trials"]
        for point in trial["points"]
        if point["role"] == "static" and point["output_tokens"]
    ]
    yield Figure(
        name="static_outputs_max_over_mean",
        value=min(unequal) if unequal else None,
        unit="x",
        better="higher",
        detail=f"{len(unequal)} static load points",
    )


def ladder_figures() -> Iterator[Figure]:
    """The knee's interval and its cause, on planted engines in virtual time."""
    seen = {name: repeated(planted, runs=LADDERS) for name, planted in KINDS.items()}
    yield Figure(
        name="saturation_interval_coverage",
        value=min(found.held for found in seen.values()),
        unit="fraction",
        better="higher",
        detail="; ".join(
            f"{name}: {found.held:.3f}, median high/low {found.width:.2f}"
            for name, found in seen.items()
        ),
    )
    yield Figure(
        name="binding_resource_right",
        value=sum(seen[name].causes >= MOST for name in BOUND),
        unit="kinds",
        better="higher",
        detail="; ".join(f"{name}: right in {seen[name].causes:.3f} of runs" for name in BOUND),
    )


def main() -> int:
    """0 when every figure meets its target."""
    given = sys.argv[1:]
    result = json.loads(Path(given[0]).read_text()) if given else demo_result()
    found = [*figures(result), *ladder_figures(), *traffic.figures(), *reuse.figures()]
    found += simulator.figures()
    found += client.figures()
    return write_figures(found, BUILD / "bench.json", "Bench")


if __name__ == "__main__":
    sys.exit(main())
