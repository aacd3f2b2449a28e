"""Records the answers of the sample traffic once, with the demo model on a real engine.

`python -m samples.record --base-url URL --model NAME --model-digest SHA256 --engine-version V
--recorded-at DATE` sends every request that has no answer yet at temperature 0, writes `response`
and `usage` into `traffic.jsonl`, and says in `DEMO_MODEL.json` what wrote them.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

import httpx

from samples.generate import TRAFFIC, Row, committed_rows, write_rows

DEMO_MODEL = Path(__file__).parent / "DEMO_MODEL.json"
_TIMEOUT_S = 600.0
_SENT = ("messages", "max_tokens", "temperature")
_COUNTS = ("prompt_tokens", "completion_tokens")


async def record(rows: list[Row], client: httpx.AsyncClient, model: str, concurrency: int) -> None:
    """Fill in the answers of `rows`, `concurrency` at a time; raises on the first bad status."""
    slots = asyncio.Semaphore(concurrency)

    async def answer(row: Row) -> None:
        body = {"model": model} | {name: row[name] for name in _SENT}
        async with slots:
            reply = await client.post("/v1/chat/completions", json=body, timeout=_TIMEOUT_S)
        reply.raise_for_status()
        found = reply.json()
        row["response"] = found["choices"][0]["message"]["content"] or ""
        row["usage"] = {name: found["usage"][name] for name in _COUNTS}
        sys.stderr.write(".")
        sys.stderr.flush()

    await asyncio.gather(*(answer(row) for row in rows))


async def _run(options: argparse.Namespace) -> int:
    rows = committed_rows()
    wanted = [row for row in rows if "response" not in row]
    if options.classes:
        wanted = [row for row in wanted if row["class"] in options.classes]
    wanted = wanted[: options.limit]
    async with httpx.AsyncClient(base_url=options.base_url) as client:
        await record(wanted, client, options.model, options.concurrency)
    write_rows(rows, TRAFFIC)
    about = {
        "model_digest": options.model_digest,
        "engine_version": options.engine_version,
        "dtype": options.dtype,
        "recorded_at": options.recorded_at,
        "temperature": 0,
    }
    DEMO_MODEL.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return len(wanted)


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 when every request that was sent has its answer."""
    parser = argparse.ArgumentParser(prog="python -m samples.record", description=__doc__)
    for name in ("base-url", "model", "model-digest", "engine-version", "dtype", "recorded-at"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--concurrency", type=int, choices=range(1, 17), default=8)
    parser.add_argument("--limit", type=int, help="send no more than this many requests")
    parser.add_argument("--classes", nargs="*", help="send requests of these classes only")
    done = asyncio.run(_run(parser.parse_args(argv)))
    sys.stdout.write(f"{done} answers recorded\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
