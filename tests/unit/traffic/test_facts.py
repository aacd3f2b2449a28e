"""Columns of requests without their text."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.traffic.facts import ESTIMATED, MISSING, REPORTED, content_order, facts_of, join_facts
from advisor.traffic.text import code_share
from tests.unit.traffic.rows import columns, lengths, texts

CODE = "def add(a, b):\n    return a + b\n\nx = add(1, 2)\n"


def chat(messages: str, **more: object) -> object:
    """One chat request."""
    (plain,) = texts(1)
    kind = {"kind": "chat", "prompt": None, "messages": messages}
    return replace(plain, **(kind | more))  # type: ignore[arg-type]


def test_counts_say_where_they_come_from() -> None:
    """Reported, counted by a tokenizer, by the run itself, or not at all."""
    requests = (
        *texts(1, prompt_tokens=7),
        *texts(1, prompt_tokens=7),
        *texts(1, prompt_ids=(1, 2)),
        *texts(1),
    )
    found = facts_of(requests, columns([None, range(9), (1, 2), None]))

    assert found.prompt_tokens.tolist() == [7, 9, 2, -1]
    assert found.prompt_source.tolist() == [REPORTED, ESTIMATED, REPORTED, MISSING]
    assert found.output_source.tolist() == [MISSING] * 4


def test_requests_with_one_system_prompt_have_one_head() -> None:
    """Whatever the user asks; a chat without a system prompt has none."""
    system = '{"role":"system","content":"be brief"}'
    rows = [
        chat(f'[{system},{{"role":"user","content":"a"}}]'),
        chat(f'[{system},{{"role":"user","content":"b"}}]'),
        chat('[{"role":"user","content":"a"}]'),
    ]
    found = facts_of(rows, None)  # type: ignore[arg-type]

    assert found.head[0] == found.head[1] != 0
    assert found.head[2] == 0
    assert len(set(found.content.tolist())) == 3


def test_turns_tools_and_formats_are_counted() -> None:
    """Messages of a user, results of tools, tools on offer, a schema asked for."""
    messages = (
        '[{"role":"user","content":"a"},{"role":"assistant","content":null},'
        '{"role":"tool","content":"r"},{"role":"user","content":[{"type":"text","text":"bc"}]}]'
    )
    row = chat(messages, tools='[{"a":1},{"b":2}]', response_format='{"type":"json_object"}')
    found = facts_of([row, lengths(1, 5, 5)], None)  # type: ignore[list-item]

    assert (found.turns[0], found.tool_turns[0], found.tools[0]) == (2, 1, 2)
    assert (found.structured[0], found.text_chars[0]) == (1, 4)
    assert (found.turns[1], found.tools[1], found.structured[1], found.images[1]) == (-1,) * 4


@pytest.mark.parametrize(
    "text,share",
    [(CODE, 1.0), (f"Why?\n```\n{CODE}```\n", 1), ("Tell me, please: how (and why) is it?", 0)],
)
def test_code_is_told_from_prose(text: str, share: float) -> None:
    """In fences or bare."""
    assert code_share(text) == pytest.approx(share, abs=0.15)


def test_blocks_of_a_file_stand_in_for_text() -> None:
    """Equal chains have equal content; the first block is the head."""
    rows = [
        lengths(0, 9, 1, block_ids=(4, 5)),
        lengths(1, 9, 1, block_ids=(4, 6)),
        lengths(2, 9, 1, block_ids=(4, 5)),
    ]
    found = facts_of(rows, None)

    assert found.content[0] == found.content[2] != found.content[1]
    assert len(set(found.head.tolist())) == 1


def test_parts_of_a_file_are_joined_by_name() -> None:
    """Labels, models and sessions are the same in every part."""
    rows = (
        *texts(1, label="b", session="x", model="m"),
        *texts(1, label="a", session="y"),
        *texts(1, label="b", session="x", model="n"),
    )
    sessions: dict[str, int] = {}
    parts = [facts_of([row], None, sessions=sessions) for row in rows]
    found = join_facts(parts)

    assert [found.labels[code] for code in found.label] == ["b", "a", "b"]
    assert found.session.tolist() == [0, 1, 0]
    assert (found.models, found.model.tolist()) == (("m", "n"), [0, -1, 1])
    assert len(join_facts([])) == 0


def test_found_classes_are_told_from_the_files_own() -> None:
    """A class of ours counts where the file names none."""
    ours = facts_of(texts(1, cluster="short"), None)
    both = join_facts([ours, facts_of(texts(1, label="faq", cluster="short"), None)])

    assert (ours.labels, ours.clustered) == (("short",), True)
    assert (both.labels, both.clustered) == (("faq", "short"), False)


def test_simultaneous_rows_are_ordered_by_what_they_hold() -> None:
    """Rows without a time come last."""
    rows = [lengths(0, 5, 1, arrival_s=1.0), lengths(1, 4, 1), lengths(2, 3, 1, arrival_s=1.0)]
    found = facts_of(rows, None)

    assert content_order(found).tolist() == [2, 0, 1]
    assert content_order(found.take([2, 1, 0])).tolist() == [0, 2, 1]


def test_columns_of_other_requests_are_refused() -> None:
    """One entry per request."""
    with pytest.raises(InvalidInput, match="tokens"):
        facts_of(texts(2), columns([range(3)]))


def test_columns_take_the_memory_that_they_promise() -> None:
    """About 120 bytes a request."""
    found = facts_of([lengths(place, 5, 5) for place in range(10)], None)
    held = [
        value for name in found.__slots__ if isinstance(value := getattr(found, name), np.ndarray)
    ]

    assert sum(column.nbytes for column in held) <= 130 * len(found)
