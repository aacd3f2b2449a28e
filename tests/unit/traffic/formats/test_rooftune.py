"""Our own JSON Lines: what is written is read back as it was."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.traffic.formats.registry import FORMATS
from advisor.traffic.formats.rooftune import row_of
from advisor.traffic.trace import Request, RequestKind
from tests.unit.traffic.rows import read

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.none() | st.text("abc/~:1 ", min_size=1, max_size=8).map(lambda name: f"n{name}n")
counts = st.none() | st.integers(1, 10**6)
ids = st.none() | st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> tuple[Request, ...]:
    """Requests of every kind, numbered as a reader numbers them, in order of arrival."""
    kinds = draw(st.lists(st.sampled_from(RequestKind), min_size=1, max_size=6))
    gaps = draw(st.lists(st.integers(0, 10**13), min_size=len(kinds), max_size=len(kinds)))
    times = [sum(gaps[1 : place + 1]) for place in range(len(kinds))]
    return tuple(
        Request(
            id=f"r{place + 1}",
            index=place,
            line=place + 1,
            kind=kind,
            arrival_s=time / 1e9,
            source_id=draw(names),
            label=draw(names),
            session=draw(names),
            model=draw(names),
            messages=json.dumps([{"role": "user", "content": draw(words)}], ensure_ascii=False)
            if kind is RequestKind.CHAT
            else None,
            prompt=draw(words) if kind is RequestKind.COMPLETION else None,
            response=draw(st.none() | words),
            tools=draw(st.none() | st.just('[{"type": "function"}]')),
            response_format=draw(st.none() | st.just('{"type": "json_object"}')),
            max_tokens=draw(counts),
            temperature=draw(st.none() | st.floats(0, 2)),
            top_p=draw(st.none() | st.floats(0, 1)),
            prompt_tokens=draw(st.integers(1, 10**6)),
            output_tokens=draw(counts),
            images=draw(st.integers(0, 3)),
            duration_s=draw(st.none() | st.floats(0, 1000)),
            ttft_s=draw(st.none() | st.floats(0, 1000)),
            block_ids=draw(ids),
            prompt_ids=draw(ids),
            output_ids=draw(ids),
        )
        for place, (kind, time) in enumerate(zip(kinds, times, strict=True))
    )


@settings(max_examples=40, deadline=None)
@given(requests(), st.sampled_from([None, 16, 512]))
def test_what_is_written_is_read_back_equal(
    written: tuple[Request, ...], block_tokens: int | None
) -> None:
    """Every field, with the size of the blocks, and nothing to remark."""
    body = "".join(row_of(request, block_tokens) + "\n" for request in written)
    trace = read(body)

    assert trace.requests == written
    assert trace.report.block_tokens == block_tokens
    assert trace.report.format.startswith("rooftune")
    assert trace.report.rejected == 0


def test_the_sign_alone_makes_the_format() -> None:
    """A file without it is somebody else's, one of a later version is refused by row."""
    row = json.loads(row_of(read('{"prompt": "Hi.", "id": 1}\n').requests[0], None))
    later = read(json.dumps(row) + "\n" + json.dumps(row | {"rooftune": 2}) + "\n").report

    assert row["rooftune"] == 1
    assert (later.accepted, later.rejected) == (1, 1)
    assert "version 1" in later.rejects[0].reason


@pytest.mark.parametrize(
    "wrong", [{"block_ids": "x"}, {"prompt_ids": [1.5]}, {"prompt": None}, {"duration_s": -1}]
)
def test_values_are_checked(wrong: dict[str, object]) -> None:
    """Anybody can write such a file."""
    good = {"rooftune": 1, "prompt": "a"}
    report = read(json.dumps(good) + "\n" + json.dumps(good | wrong) + "\n").report

    assert (report.accepted, report.rejected) == (1, 1)


def test_a_size_of_blocks_that_reading_does_not_know_is_not_written() -> None:
    """Better no file than one whose reuse cannot be read."""
    (request,) = read('{"prompt": "Hi."}\n').requests
    with pytest.raises(InvalidInput, match="block_tokens"):
        row_of(replace(request, block_ids=(1,)), 24)
    assert len({known.name for known in FORMATS}) == len(FORMATS)
