"""`rooftune workload derive`: traffic made of traffic files, offline."""

import json
from functools import partial
from pathlib import Path

import pytest

from advisor.traffic.reading import read_trace
from advisor.traffic.sampling.synthesis import Recipe, derived
from advisor.traffic.trace import Trace
from api.cli.answer import Exit
from tests.api.front import Run


@pytest.fixture
def run(rooftune: Run) -> Run:
    """Run `rooftune workload derive`: exit code, standard output, standard error."""
    return partial(rooftune, "workload", "derive")


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Two sessions of two turns, with text."""
    ask = {"role": "user", "content": "Name a river."}
    return written(
        tmp_path / "chats.jsonl",
        [
            {
                "timestamp": 1_700_000_000 + 2 * at,
                "messages": [ask],
                "response": "The Elbe.",
                "session_id": f"s{at % 2}",
                "class": "geo",
            }
            for at in range(4)
        ],
    )


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """Lengths with block ids of 512 tokens."""
    return written(
        tmp_path / "blocks.jsonl",
        [
            {"timestamp": 1000 * at, "input_length": 1000, "output_length": 9, "hash_ids": [0, at]}
            for at in range(1, 4)
        ],
    )


def traced(path: Path) -> Trace:
    with path.open("rb") as stream:
        return read_trace(stream, filename=path.name)


def test_twice_the_rate_is_written_and_read_back(run: Run, chats: Path, tmp_path: Path) -> None:
    """Half the gaps, everything else as it was."""
    out = tmp_path / "fast.jsonl"
    code, said, _ = run(chats, "--rate", 2, "--out", out)
    found = traced(out)

    assert code == Exit.OK
    assert "4 requests" in said
    assert [request.arrival_s for request in found.requests] == [0, 1, 2, 3]
    assert found.requests == derived([traced(chats).requests], Recipe(rate=2), ["chats"])
    assert not list(tmp_path.glob("*.part"))


def test_files_are_merged_under_their_names(
    run: Run, chats: Path, blocks: Path, tmp_path: Path
) -> None:
    """Text and lengths side by side, blocks with their size, classes by file."""
    out = tmp_path / "both.jsonl"
    code, said, _ = run(chats, blocks, "--label-by-file", "--out", out, "--json")
    found = traced(out)

    assert code == Exit.OK
    assert json.loads(said)["requests"] == 7
    assert {request.label for request in found.requests} == {"chats: geo", "blocks"}
    assert found.report.block_tokens == 512
    assert {request.session for request in found.requests} == {"1/s0", "1/s1", None}


def test_more_requests_are_drawn_and_copies_are_said(run: Run, chats: Path, tmp_path: Path) -> None:
    """Ten of four; equal seeds write equal files."""
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    _, said, _ = run(chats, "--requests", 10, "--seed", 3, "--out", one)
    run(chats, "--requests", 10, "--seed", 3, "--out", other)

    assert "repeat a session" in said
    assert len(traced(one).requests) == 10
    assert one.read_bytes() == other.read_bytes()


def test_what_cannot_be_derived_is_a_usage_error_and_leaves_no_file(
    run: Run, chats: Path, blocks: Path, tmp_path: Path
) -> None:
    """Longer answers of text, logs that do not say when they began, a source as the result."""
    out = tmp_path / "out.jsonl"
    for options, why in (
        ((chats, "--outputs", 2), "lengths only"),
        ((chats, blocks, "--by-time"), "when it began"),
        ((chats, "--rate", 0), "rate"),
    ):
        code, _, errors = run(*options, "--out", out)

        assert code == Exit.USAGE
        assert why in errors
        assert not list(tmp_path.glob("out*"))
    assert run(chats, "--out", chats)[0] == Exit.USAGE
    assert len(traced(chats).requests) == 4


def test_logs_keep_their_distance_in_time(run: Run, chats: Path, tmp_path: Path) -> None:
    """The second began three seconds after the first."""
    later = written(
        tmp_path / "later.jsonl", [{"timestamp": 1_700_000_003, "prompt": "Hi.", "id": "x"}]
    )
    run(later, chats, "--by-time", "--out", tmp_path / "both.jsonl")

    assert [
        (request.arrival_s, request.session) for request in traced(tmp_path / "both.jsonl").requests
    ] == [(0, "2/s0"), (2, "2/s1"), (3, None), (4, "2/s0"), (6, "2/s1")]


def test_epoch_times_at_twice_the_speed_start_at_once(
    run: Run, shared: Path, tmp_path: Path
) -> None:
    """Case T-07: offsets 0, 1 and 3 s, and no wait of half an epoch."""
    out = tmp_path / "fast.jsonl"
    code, _, _ = run(shared / "cases" / "t07_epoch_speed.jsonl", "--rate", 2, "--out", out)

    assert code == Exit.OK
    assert [request.arrival_s for request in traced(out).requests] == [0, 1, 3]
