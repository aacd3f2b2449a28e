"""The quick way through rows of the usual shape says what the rules for all rows say."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.traffic.formats.chat_jsonl import exchange_of
from advisor.traffic.formats.exchange import draft
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import Notes
from advisor.traffic.formats.usual_rows import usual_draft

TEXT = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", 'a\nb\t"c"\\', "half \ud800", "data: [DONE]", '{"a": 1}', "x" * 300]),
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "user", "assistant", "tool", ""]), "content": TEXT},
    optional={"name": TEXT},
)
COUNT = st.one_of(
    st.none(), st.integers(-2, 400), st.sampled_from([True, 1.5, "12", "x", 10**9, float("nan")])
)
USAGE = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "total_tokens": COUNT,
            "completion_tokens_details": st.just({"reasoning_tokens": 3}),
        },
    ),
)
TIME = st.one_of(
    st.none(), st.integers(-5, 2 * 10**9), st.sampled_from(["2026-01-01T00:00:00Z", "x", 1.5])
)
ROWS = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, max_size=3)},
    optional={
        "response": st.one_of(st.none(), TEXT),
        "usage": USAGE,
        "created": TIME,
        "arrival_ms": TIME,
        "id": st.one_of(st.none(), TEXT, st.integers()),
        "session_id": st.one_of(st.none(), TEXT),
        "label": st.one_of(st.none(), TEXT),
        "model": st.one_of(st.none(), TEXT, st.integers()),
        "max_tokens": COUNT,
        "temperature": COUNT,
        "top_p": COUNT,
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "stream": st.booleans(),
        "status": st.sampled_from([200, 500]),
        "latency_s": st.floats(0, 5),
        "tools": st.just([]),
        "body": st.just({"max_tokens": 3}),
    },
)


def both(row: dict[str, Any]) -> tuple[Any, Any]:
    """What the quick way and the rules say; None for the quick way where it leaves the row."""
    said: list[Any] = []
    for way in (usual_draft, lambda *given: draft(exchange_of(*given), *given[1:])):
        notes = Notes()
        try:
            found = way(row, 7, notes)
        except BadField as bad:
            said.append((bad.field, bad.reason))
            continue
        facts = None if found is None else (found.kind, found.time, found.failed, _known(found))
        said.append(None if facts is None else (*facts, notes.counts))
    return said[0], said[1]


def _known(found: Any) -> dict[str, object]:
    return {name: value for name, value in found.fields.items() if value is not None}


@settings(max_examples=400)
@given(ROWS)
def test_a_row_that_is_taken_at_once_is_what_the_rules_make_of_it(row: dict[str, Any]) -> None:
    """Equal drafts, equal reasons, equal notes, or the row is left to the rules."""
    quick, ruled = both(row)

    assert quick is None or quick == ruled


def test_the_usual_row_is_taken_at_once() -> None:
    """Else the law above would hold for nothing."""
    row = {
        "id": "a", "created": 1_700_000_000.5, "model": "m", "max_tokens": 5, "temperature": 0.7,
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "grüße"}],
        "response": "done", "usage": {"prompt_tokens": 3, "completion_tokens": 2,
                                      "total_tokens": 5},
    }  # fmt: skip
    quick, ruled = both(row)

    assert quick is not None
    assert quick == ruled
    assert Counter(quick[3]) == Counter(ruled[3])
