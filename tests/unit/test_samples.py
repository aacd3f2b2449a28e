"""The sample traffic that the demo uploads: what it promises, and that it can be made again."""

import asyncio
import json
import re
import statistics
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import cast

import httpx
import pytest

from advisor.traffic.drafting.drafts import Replay
from advisor.traffic.drafting.lookup import acceptance, replay
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.reading import read_trace
from advisor.traffic.summary import summarise
from advisor.traffic.trace import Trace
from samples import generate
from samples.generate import Row, committed_rows, main, make_rows, merged, without_answers
from samples.record import DEMO_MODEL, record

CLASSES = ("code_edit", "extraction", "prose", "summary", "support")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return committed_rows()


@pytest.fixture(scope="module")
def trace() -> Trace:
    with generate.TRAFFIC.open("rb") as stream:
        return read_trace(stream, filename="traffic.jsonl")


@pytest.fixture(scope="module")
def summary(trace: Trace) -> TrafficSummary:
    """By the engine's own counts, which the file reports."""
    return summarise(trace.requests, None, block_size=32)


def test_the_generator_makes_the_committed_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    """Seed and phrases are the file."""
    assert main(["--check"]) == 0
    assert "unchanged" in capsys.readouterr().out


def test_a_changed_file_fails_the_check_and_writing_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded answers of unchanged prompts are kept."""
    path = tmp_path / "traffic.jsonl"
    monkeypatch.setattr(generate, "TRAFFIC", path)
    known = [row | {"response": "kept", "usage": {}} for row in make_rows()]

    assert main(["--check"]) == 1
    assert merged(make_rows(), known) == known
    assert without_answers(known) == make_rows()


def test_every_row_is_a_request_without_a_remark(trace: Trace, rows: list[Row]) -> None:
    """240 or more, every line taken, nothing odd."""
    assert trace.report.accepted == len(rows) >= 240
    assert trace.report.rejected == 0
    assert trace.report.warnings == ()


def test_every_answer_was_recorded_at_temperature_0(rows: list[Row]) -> None:
    """With the engine's own counts, and nobody's limit passed."""
    for row in rows:
        usage = cast("dict[str, int]", row["usage"])

        assert row["temperature"] == 0
        assert isinstance(row["response"], str)
        assert 0 < usage["completion_tokens"] <= cast("int", row["max_tokens"])


@pytest.mark.parametrize("label", CLASSES)
def test_lengths_of_a_class_are_as_promised(summary: TrafficSummary, label: str) -> None:
    """Prompts 30 to 900 tokens with a median of 150 to 350, outputs with a long tail."""
    (found,) = (item for item in summary.classes if item.label == label)
    prompts, outputs = found.prompt_tokens, found.output_tokens

    assert prompts is not None
    assert prompts.p5 >= 30
    assert prompts.max <= 900
    assert 150 <= prompts.p50 <= 350
    assert outputs is not None
    assert outputs.max / outputs.mean >= 3


def test_there_are_five_classes_and_short_prompts_on_average(summary: TrafficSummary) -> None:
    """Batching is compared at a mean prompt of at most 300 tokens."""
    assert tuple(item.label for item in summary.classes) == CLASSES
    assert min(item.requests for item in summary.classes) >= 40
    assert summary.overall.prompt_tokens is not None
    assert summary.overall.prompt_tokens.mean <= 300


def test_two_hours_of_arrivals_have_a_bursty_one(trace: Trace, summary: TrafficSummary) -> None:
    """More varied than Poisson, mostly in the second hour."""
    arrivals = summary.arrivals
    late = [request for request in trace.requests if (request.arrival_s or 0) > 3600]

    assert arrivals is not None
    assert 1.5 * 3600 < arrivals.span_s < 2.5 * 3600
    assert (arrivals.interarrival_cv or 0) > 1.3
    assert len(late) > len(trace.requests) / 2


def test_later_turns_resend_the_history(trace: Trace, summary: TrafficSummary) -> None:
    """A turn's messages begin with those of the turn before, in order of time."""
    sessions: defaultdict[str, list[list[object]]] = defaultdict(list)
    for request in trace.requests:
        if request.session is not None:
            sessions[request.session].append(json.loads(request.messages or ""))

    assert summary.sessions == len(sessions) >= 5
    for turns in sessions.values():
        assert len(turns) >= 2
        for earlier, later in pairwise(turns):
            assert later[: len(earlier)] == earlier


def test_support_shares_one_long_system_prompt(rows: list[Row]) -> None:
    """Every request of the class begins with the same message."""
    first = {
        json.dumps(cast("list[object]", row["messages"])[0])
        for row in rows
        if row["class"] == "support"
    }

    assert len(first) == 1
    assert len(first.pop()) > 1000


def test_code_edits_copy_and_prose_does_not(rows: list[Row]) -> None:
    """Words and marks instead of tokens: accepted drafts in one class, hardly any in the other."""
    steps = {}
    for label in ("code_edit", "extraction", "prose"):
        found = acceptance(
            [_replay(row) for row in rows if row["class"] == label], k=4, basis="words"
        )

        assert found is not None
        steps[label] = found.tokens_per_step.value

    assert steps["code_edit"] > 1.5
    assert steps["extraction"] > 1.2
    assert steps["prose"] < 1.15


def _replay(row: Row) -> Replay:
    texts = [json.dumps(row["messages"], ensure_ascii=False), str(row["response"])]
    words = [re.findall(r"\w+|[^\w\s]", text.replace("\\n", " ")) for text in texts]
    numbers = {word: place for place, word in enumerate({word for half in words for word in half})}
    prompt, output = ([numbers[word] for word in half] for half in words)
    return replay(prompt, output, k=4)


def test_the_file_names_the_model_that_answered() -> None:
    """Digest of the demo model, engine, number format and day."""
    about = json.loads(DEMO_MODEL.read_text(encoding="utf-8"))

    assert re.fullmatch(r"[0-9a-f]{64}", about["model_digest"])
    assert about["temperature"] == 0
    assert set(about) == {"model_digest", "engine_version", "dtype", "recorded_at", "temperature"}


def test_no_answer_loops(rows: list[Row]) -> None:
    """Small models repeat themselves at temperature 0; a loop would be accepted as a draft."""
    shares = []
    for row in rows:
        if row["class"] == "prose":
            words = str(row["response"]).split()
            grams = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
            shares.append(len(set(grams)) / max(1, len(grams)))

    assert statistics.mean(shares) > 0.97


def test_recording_fills_in_answer_and_counts() -> None:
    """Model, messages, limit and temperature are sent, and nothing of the file's own fields."""
    sent = []

    def reply(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
        return httpx.Response(
            200, json={"choices": [{"message": {"content": "hi"}}], "usage": usage}
        )

    async def run(row: Row) -> None:
        transport = httpx.MockTransport(reply)
        async with httpx.AsyncClient(base_url="http://engine", transport=transport) as client:
            await record([row], client, "demo", 2)

    row = make_rows()[0]
    asyncio.run(run(row))

    assert (row["response"], row["usage"]) == ("hi", {"prompt_tokens": 9, "completion_tokens": 2})
    assert sent[0].keys() == {"model", "messages", "max_tokens", "temperature"}
