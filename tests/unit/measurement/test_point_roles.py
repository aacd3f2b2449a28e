"""What a load point's role changes in its figures."""

from advisor.measurement.records import LoadRole, Outcome, RequestRecord
from tests.fakes.records import point, record


def test_gangs_are_not_blamed_for_the_slots_that_they_leave_empty() -> None:
    """One of four answers takes ten times as long: a flaw of a closed loop only."""
    records = [
        record(first, first + (10.0 if place == 3 else 1.0))
        for first in (0.0, 10.0)
        for place in range(4)
    ]
    gangs = point(*records, concurrency=4, role=LoadRole.STATIC)
    loop = point(*records, concurrency=4, role=LoadRole.CONTROL)

    assert (gangs.role, gangs.usable, gangs.flaws) == (LoadRole.STATIC, True, ())
    assert "load not reached" in loop.flaws[0]


def test_the_rate_at_full_load_leaves_the_drain_out() -> None:
    """Two slots, one token a second each, and a last answer that runs on alone for a minute."""

    def answer(sent_s: float, tokens: int) -> RequestRecord:
        times = tuple(sent_s + place + 1.0 for place in range(tokens))
        return record(sent_s, times[-1], output_tokens=tokens, frame_times_s=times)

    records = [answer(float(at), 5) for at in (0, 0, 5, 5, 10)] + [answer(10.0, 60)]
    loop = point(*records, concurrency=2, role=LoadRole.CONTROL)
    gangs = point(*records, concurrency=2, role=LoadRole.STATIC)

    assert loop.loaded_tokens_per_s == 2.0
    assert loop.throughput_tokens_per_s.value < 1.3
    assert gangs.loaded_tokens_per_s is None
    assert point(*records[:3], concurrency=2).loaded_tokens_per_s is None


def test_the_longest_answer_of_a_success_is_kept() -> None:
    """Failures and unknown counts say nothing of it."""
    found = point(
        record(0, 1, output_tokens=7),
        record(1, 2, output_tokens=99, outcome=Outcome.FAILED),
        record(2, 3, output_tokens=None),
    )

    assert found.longest_output_tokens == 7
    assert point(record(0, 1, output_tokens=None)).longest_output_tokens is None
