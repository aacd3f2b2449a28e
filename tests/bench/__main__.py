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

from tests.bench.figures import Figure, write_figures

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
SLOW, FAST = 16, 1


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
    """One per figure of issue 2."""
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
    yield Figure(
        name="demo_after_installation",
        value=result["seconds"]["total"],
        unit="s",
        better="lower",
        detail=json.dumps(result["seconds"]),
    )


def main() -> int:
    """0 when every figure meets its target."""
    given = sys.argv[1:]
    result = json.loads(Path(given[0]).read_text()) if given else demo_result()
    return write_figures(list(figures(result)), BUILD / "bench.json", "Bench")


if __name__ == "__main__":
    sys.exit(main())
