"""Figures of reading uploads: rows of lengths, text, and a file that expands without end.

Every reading runs in a process of its own (``python -m tests.bench.traffic KIND FILE``), so that
its peak memory is its own.
"""

import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sklearn.decomposition  # noqa: F401 -- used lazily; like all libraries loaded before the clock

from advisor.errors import UnreadableFile
from advisor.traffic.reading import open_trace
from advisor.traffic.summary import TrafficTally
from advisor.traffic.tokens import ChatTokenizer, token_columns
from advisor.units import GIB, KIB, MIB
from tests.bench.figures import Figure
from tests.fakes.tokenizer import PLAIN_TEMPLATE, byte_tokenizer_json

LENGTHS_ROWS = 1_000_000
TEXT_ROWS = 64_000
BLOCK_SIZE = 16
MB = 10**6
Measured = dict[str, float | int | str]


# ------------------------------------------------------------------------------------- the files


def write_lengths(file: Path) -> None:
    """A lengths-only CSV: Poisson arrivals at 50 a second, log-normal lengths."""
    rng = random.Random(4)  # noqa: S311 -- the same file every time
    at_s = 0.0
    with file.open("w", encoding="utf-8") as out:
        out.write("arrival_s,prompt_tokens,output_tokens\n")
        for _ in range(LENGTHS_ROWS):
            at_s += rng.expovariate(50)
            prompt, output = rng.lognormvariate(6, 1), rng.lognormvariate(5, 1)
            out.write(f"{at_s:.6f},{int(prompt) + 1},{int(output) + 1}\n")


def write_text(file: Path) -> None:
    """JSONL of chats as a gateway logs them, rows of 1 to 4 KB."""
    rng = random.Random(4)  # noqa: S311 -- the same file every time
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randrange(2, 10))) for _ in range(3000)]

    def text(chars: int) -> str:
        return " ".join(rng.choices(words, k=chars // 7))

    system = text(600)
    at_s = 1_700_000_000.0
    with file.open("w", encoding="utf-8") as out:
        for place in range(TEXT_ROWS):
            at_s += rng.expovariate(20)
            asked = text(rng.randrange(100, 2400))
            row = {
                "id": f"request-{place}",
                "created": round(at_s, 3),
                "model": "served",
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": asked},
                ],
                "max_tokens": 512,
                "temperature": 0.7,
                "response": text(rng.randrange(50, 900)),
                "usage": {"prompt_tokens": (600 + len(asked)) // 4, "completion_tokens": 120},
            }
            out.write(json.dumps(row) + "\n")


def write_bomb(file: Path) -> None:
    """2 GiB of one row again and again, compressed: well-formed JSONL to its end."""
    part = (json.dumps({"prompt": "a" * 999}) + "\n").encode() * KIB
    with gzip.open(file, "wb", compresslevel=6) as out:
        for _ in range(2 * GIB // len(part) + 1):
            out.write(part)


# ----------------------------------------------------------------------------- in the other process


def peak_mib() -> float:
    """Highest memory of this process. `ru_maxrss` would count that of the parent before `exec`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) / KIB


def read_lengths(file: Path) -> Measured:
    """Seconds of reading and of summarising; CPU time, because other work may run beside it."""
    with file.open("rb") as stream, tempfile.TemporaryFile() as spool:
        start_s = time.process_time()
        opened = open_trace(stream, filename=file.name, spool=spool)
        facts = opened.facts
        read_s = time.process_time() - start_s
        tally = TrafficTally(block_size=BLOCK_SIZE)
        if facts is not None:
            tally.add_facts(facts)
        summary = tally.finish(report=opened.report)
        total_s = time.process_time() - start_s
    return {
        "rows": summary.requests,
        "read_s": read_s,
        "total_s": total_s,
        "peak_mib": peak_mib(),
    }


def read_text(file: Path) -> Measured:
    """Seconds of reading with normalising, of summarising, and of the tokenizer."""
    tokenizer = ChatTokenizer(byte_tokenizer_json(), PLAIN_TEMPLATE, {})
    with file.open("rb") as stream, tempfile.TemporaryFile() as spool:
        start_s = time.process_time()
        opened = open_trace(stream, filename=file.name, spool=spool)
        rows = sum(len(part) for part in opened.batches())
        read_s = time.process_time() - start_s
        tally = TrafficTally(block_size=BLOCK_SIZE)
        for part in opened.batches():
            tally.add(part, None)
        tally.finish(report=opened.report)
        total_s = time.process_time() - start_s - read_s
        first = next(opened.batches())
        start_s = time.process_time()
        token_columns(first, tokenizer)
        tokens_s = time.process_time() - start_s
        chars = sum(len(item.messages or "") + len(item.response or "") for item in first)
    return {
        "rows": rows,
        "read_s": read_s,
        "summary_s": total_s,
        "tokens_mb_per_s": chars / MB / tokens_s,
        "peak_mib": peak_mib(),
    }


def read_bomb(file: Path) -> Measured:
    """What is said about the file, and after how long."""
    start_s = time.process_time()
    reason = "it was read to its end"
    with file.open("rb") as stream, tempfile.TemporaryFile() as spool:
        try:
            open_trace(stream, filename=file.name, spool=spool)
        except UnreadableFile as refused:
            reason = str(refused)
    return {"reason": reason, "total_s": time.process_time() - start_s, "peak_mib": peak_mib()}


READERS = {"lengths": read_lengths, "text": read_text, "bomb": read_bomb}


# ------------------------------------------------------------------------------------- the figures


def measured(kind: str, file: Path) -> Measured:
    """What another process finds in a file."""
    command = [sys.executable, "-m", "tests.bench.traffic", kind, str(file)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=root)
    found: Measured = json.loads(done.stdout)
    return found


def figures() -> Iterator[Figure]:
    """All figures of reading; some 2 GB pass through a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        yield from lengths_figures(Path(folder) / "lengths.csv")
        yield text_figure(Path(folder) / "text.jsonl")
        yield bomb_figure(Path(folder) / "bomb.jsonl.gz")


def lengths_figures(file: Path) -> Iterator[Figure]:
    """A lengths-only CSV of a million rows, read and summarised."""
    write_lengths(file)
    found = measured("lengths", file)
    total_s, read_s = float(found["total_s"]), float(found["read_s"])
    rows = int(found["rows"])
    yield Figure(
        name="lengths_csv_rows_per_s",
        value=rows / total_s,
        unit="rows/s",
        better="higher",
        detail=(
            f"{rows:,} rows, {file.stat().st_size / MB:.0f} MB: read in {read_s:.2f} s,"
            f" summarised in {total_s - read_s:.2f} s of CPU time, one thread; libraries were"
            " loaded before (scikit-learn, where classes are found, takes some seconds)"
        ),
    )
    yield Figure(
        name="lengths_csv_peak_mib",
        value=float(found["peak_mib"]),
        unit="MiB",
        better="lower",
        detail="peak memory of the process that read and summarised it, interpreter included",
    )


def text_figure(file: Path) -> Figure:
    """JSONL with text, read and normalised."""
    write_text(file)
    found = measured("text", file)
    size_mb = file.stat().st_size / MB
    return Figure(
        name="jsonl_text_mb_per_s",
        value=size_mb / float(found["read_s"]),
        unit="MB/s",
        better="higher",
        detail=(
            f"{int(found['rows']):,} rows, {size_mb:.0f} MB, read and normalised; CPU time, one"
            f" thread, without tokenizer; summarising (once more through the rows) at"
            f" {size_mb / float(found['summary_s']):.0f} MB/s; tokenizer of bytes at"
            f" {float(found['tokens_mb_per_s']):.1f} MB/s; peak {float(found['peak_mib']):.0f} MiB"
        ),
    )


def bomb_figure(file: Path) -> Figure:
    """2 GiB of text in a gzip file of some MB."""
    write_bomb(file)
    found = measured("bomb", file)
    return Figure(
        name="gzip_bomb_peak_mib",
        value=float(found["peak_mib"]) if "expand" in str(found["reason"]) else None,
        unit="MiB",
        better="lower",
        detail=(
            f"{file.stat().st_size / MIB:.1f} MiB in the file; after"
            f" {float(found['total_s']):.1f} s: {found['reason']}"
        ),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(READERS[sys.argv[1]](Path(sys.argv[2]))))
