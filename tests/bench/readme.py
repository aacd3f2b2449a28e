"""`python -m tests.bench.readme FILE`: a result of `rooftune demo --json` into the README."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

README = Path(__file__).parents[2] / "README.md"
START, END = "<!-- demo-result:start -->", "<!-- demo-result:end -->"


def _change(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return "not measured"
    value, low, high = (f"{(estimate[name] - 1) * 100:+.0f}" for name in ("value", "low", "high"))
    return f"{value} % ({low} to {high})"


def section(result: dict[str, Any]) -> Iterator[str]:
    """Ranking, verdicts, acceptance, memory and answer, each number with its interval."""
    advice = result["recommendation"]
    load = advice["goal"]["concurrency"]
    yield f"Measured by `make demo` on {advice['machine']}, vLLM {advice['engine_version']},"
    yield "the demo model (SmolLM2-135M-Instruct), baseline"
    levers = {k: v for k, v in advice["baseline"]["levers"].items() if v is not None}
    prompt, output = advice["mean_prompt_tokens"], advice["mean_output_tokens"]
    yield f"{json.dumps(levers)}; {advice['requests_measured']} requests replayed, mean prompt"
    yield f"{prompt:.0f} and mean output {output:.0f} tokens."
    yield "Intervals are 95 % t intervals over the noise floor of repeats"
    yield f"({advice['noise']['relative_sd']['value']:.1%} of a figure)."
    yield ""
    yield f"| rank at {load} in flight | configuration | tokens/s | against the baseline |"
    yield "|--:|---|--:|--:|"
    for item in advice["ranked"]:
        rate = item["throughput_tokens_per_s"]
        shown = f"{rate['value']:.1f} ({rate['low']:.1f} to {rate['high']:.1f})"
        yield f"| {item['rank']} | {item['title']} | {shown} | {_change(item['gain'])} |"
    yield ""
    yield "| technique | in flight | verdict | predicted before | measured |"
    yield "|---|--:|---|--:|--:|"
    for verdict in advice["verdicts"]:
        for effect in verdict["effects"]:
            measured = effect["measured"]
            found = _change(measured) if measured else effect["reason"]
            predicted = _change(effect["predicted"]) if effect["predicted"] else ""
            cells = (verdict["title"], effect["concurrency"], effect["kind"], predicted, found)
            yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield from (f"- {finding}" for finding in result["findings"])
    yield ""
    yield from _details(result, advice)


def _details(result: dict[str, Any], advice: dict[str, Any]) -> Iterator[str]:
    for verdict in advice["verdicts"]:
        for figures in verdict["acceptance"].values():
            if figures["per_position"]:
                shares = ", ".join(f"{item['value']:.2f}" for item in figures["per_position"])
                yield f"Drafts accepted by position: {shares};"
                yield f"{figures['tokens_per_step']:.2f} tokens per step of a request."
    memory = advice["memory"]
    weights, peak = memory["weight_bytes"] / 2**20, memory["kv_peak_usage"]
    answer = result["answer"]
    yield f"Memory: weights {weights:.0f} MiB, KV cache for {memory['kv_cache_tokens']} tokens,"
    yield f"of which {peak:.1%} were in use at the peak. Whole demo:"
    yield f"{result['seconds']['total']:.0f} s after installation. Asked through the proxy:"
    yield f"{answer['question']} Answered: {answer['text']}"


def main() -> int:
    """Rewrites the section between the markers."""
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    body = "\n".join(section(result))
    README.write_text(f"{before}{START}\n{body}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
