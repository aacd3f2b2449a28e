"""What an upload alone says."""

import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.traffic.figures import CountSource
from advisor.traffic.statistics.arrivals import arrivals
from advisor.traffic.statistics.interval import ratio_interval
from advisor.traffic.statistics.lengths import quantiles
from advisor.traffic.summary import summarise
from tests.unit.traffic.rows import columns, lengths, texts


def test_percentiles_are_linear_interpolated() -> None:
    """0 to 100 in steps of 10."""
    found = quantiles([*range(0, 101, 10), None])

    assert found is not None
    assert (found.p5, found.p25, found.p50, found.p75, found.p95) == (5, 25, 50, 75, 95)
    assert (found.mean, found.max, found.count, found.unknown) == (50, 100, 11, 1)


def test_no_known_value_has_no_percentiles() -> None:
    """None, not zero."""
    assert quantiles([None, None]) is None


def test_even_arrivals_have_no_variation() -> None:
    """One a second for two minutes."""
    found = arrivals([float(at) for at in range(121)])

    assert found is not None
    assert (found.span_s, found.rate_per_s, found.interarrival_cv) == (120, 1, 0)
    assert found.burstiness_ratio == pytest.approx(1, rel=0.5)
    assert found.peak_simultaneous == 1


def test_a_burst_shows_in_every_figure() -> None:
    """Ten at once in the middle of a minute of single arrivals."""
    found = arrivals([0, 30, *[30] * 9, 60])

    assert found is not None
    assert found.peak_simultaneous == 10
    assert found.burstiness_ratio == pytest.approx(10 * 60 / 12)
    assert found.peak_rate_per_s == pytest.approx(10)
    assert (found.interarrival_cv or 0) > 1


@pytest.mark.parametrize("times", [[], [3.0], [3.0, 3.0]])
def test_arrivals_need_two_different_times(times: list[float]) -> None:
    """No span, no rate."""
    assert arrivals(times) is None


def test_two_arrivals_have_a_rate_but_no_variation() -> None:
    """One gap does not vary."""
    found = arrivals([0, 2])

    assert found is not None
    assert (found.rate_per_s, found.interarrival_cv) == (0.5, None)


def test_an_interval_holds_its_ratio_and_repeats() -> None:
    """The seed is fixed."""
    value, low, high = ratio_interval([1, 2, 3, 4], [2, 2, 4, 4])

    assert value == pytest.approx(10 / 12)
    assert low < value < high
    assert ratio_interval([1, 2, 3, 4], [2, 2, 4, 4]) == (value, low, high)


def test_draws_without_a_denominator_are_left_out() -> None:
    """A request of zero tokens can be drawn every time."""
    assert ratio_interval([0, 1], [0, 1]) == (1, 1, 1)


def test_figures_come_per_class_and_over_all() -> None:
    """A copying class and one that does not copy are not averaged into one."""
    repeat = list(range(40))
    requests = (*texts(2, label="copy", temperature=0.0), *texts(2, label="prose", temperature=0.7))
    tokens = columns(
        [repeat, repeat, range(100, 140), range(200, 240)],
        [repeat, repeat, range(300, 340), range(400, 440)],
    )
    found = summarise(requests, tokens, block_size=16)
    copy, prose = found.classes

    assert [item.label for item in (found.overall, copy, prose)] == ["all", "copy", "prose"]
    assert copy.lookup is not None
    assert prose.lookup is not None
    assert copy.lookup.tokens_per_step.value > 4
    assert prose.lookup.tokens_per_step.value == 1
    assert copy.lookup.tokens_per_step.source is Source.SIMULATED
    assert "temperature 0 for 2, above 0 for 2" in found.overall.lookup.tokens_per_step.basis  # type: ignore[union-attr]
    assert copy.prefix_sharing is not None
    assert (copy.prefix_sharing.hit_tokens, copy.prefix_sharing.prompt_tokens) == (32, 80)
    assert prose.prefix_sharing is not None
    assert prose.prefix_sharing.hit_share.value == 0


def test_requests_without_a_class_are_a_class_only_beside_others() -> None:
    """A file that names no classes has none."""
    requests = (*texts(1), *texts(1, label="faq"))

    assert [item.label for item in summarise(requests, None, block_size=16).classes] == [
        "faq",
        "unlabelled",
    ]
    assert summarise(texts(2), None, block_size=16).classes == ()


def test_without_a_tokenizer_text_is_not_measured() -> None:
    """The reason says what is missing; reported counts stand."""
    found = summarise(texts(2, prompt_tokens=7, session="s"), None, block_size=16)

    assert found.count_source is CountSource.REPORTED
    assert found.with_text == 2
    assert found.sessions == 1
    assert found.overall.prompt_tokens is not None
    assert set(found.unmeasurable) >= {"output_tokens", "arrivals", "prefix_sharing", "lookup"}
    assert "prompt_tokens" not in found.unmeasurable
    assert "tokenizer" in found.unmeasurable["lookup"]


def test_nothing_known_is_unknown() -> None:
    """Every figure has its reason."""
    found = summarise(texts(2), None, block_size=16)

    assert found.count_source is CountSource.UNKNOWN
    assert "prompt_tokens" in found.unmeasurable


def test_chats_that_no_template_takes_say_so() -> None:
    """The target has no chat template."""
    found = summarise(texts(2), columns([None, None]), block_size=16)

    assert "chat template" in found.unmeasurable["prefix_sharing"]


def test_prompts_without_answers_share_but_cannot_be_replayed() -> None:
    """Each figure has its own reason."""
    found = summarise(texts(2), columns([range(40), range(40)]), block_size=16)

    assert found.overall.prefix_sharing is not None
    assert "no recorded outputs" in found.unmeasurable["lookup"]


def test_empty_prompts_have_nothing_to_share() -> None:
    """A template that renders nothing."""
    found = summarise(texts(1), columns([()]), block_size=16)

    assert found.overall.prefix_sharing is None
    assert "prefix_sharing" in found.unmeasurable


def test_reported_counts_far_from_the_text_are_warned_of() -> None:
    """Another tokenizer, or a gateway that counts wrongly."""
    found = summarise(
        texts(3, prompt_tokens=10), columns([range(40), range(12), None]), block_size=16
    )
    near = summarise(texts(1, prompt_tokens=10), columns([range(12)]), block_size=16)

    assert found.warnings[0].startswith("1 of 2 reported prompt counts")
    assert near.warnings == ()


def test_reported_lengths_fill_in_where_there_is_no_text() -> None:
    """A mixed upload."""
    requests = (*texts(1), lengths(1, 100, 20))
    found = summarise(requests, columns([range(40), None]), block_size=16)

    assert found.overall.prompt_tokens is not None
    assert found.overall.prompt_tokens.mean == 70
    assert found.count_source is CountSource.TOKENISED


def test_columns_of_other_requests_are_refused() -> None:
    """One entry per request."""
    with pytest.raises(InvalidInput, match="tokens"):
        summarise(texts(2), columns([range(3)]), block_size=16)


def test_a_summary_of_nothing_says_so() -> None:
    """No request, no figure."""
    found = summarise((), None, block_size=16)

    assert found.requests == 0
    assert found.overall.prompt_tokens is None


def test_other_draft_lengths_are_replayed_beside_the_main_one() -> None:
    """Each with its own figures, over all and per class."""
    repeat = list(range(20))
    requests = texts(2, label="copy")
    tokens = columns([repeat, repeat], [repeat, repeat])
    found = summarise(requests, tokens, block_size=16, lookup_tokens=4, other_lookups=(2,))

    for item in (found.overall, *found.classes):
        assert item.lookup is not None
        assert item.lookup.num_speculative_tokens == 4
        assert [other.num_speculative_tokens for other in item.other_lookups] == [2]
        assert item.lookup.tokens_per_step.value > item.other_lookups[0].tokens_per_step.value
    assert summarise(requests, tokens, block_size=16).overall.other_lookups == ()


def test_whole_requests_have_their_tokens_and_blocks() -> None:
    """Prompt and output together; the last block of each is partly empty."""
    found = summarise([lengths(0, 10, 6), lengths(1, 17, 16)], None, block_size=16)

    assert found.total_tokens is not None
    assert (found.total_tokens.mean, found.total_tokens.max) == (24.5, 33)
    assert found.paged_share == pytest.approx((16 + 33) / (16 + 48))
    assert found.block_size == 16


def test_requests_without_lengths_have_neither() -> None:
    """None, not zero."""
    found = summarise(texts(2), None, block_size=16)

    assert found.total_tokens is None
    assert found.paged_share is None
    assert found.static_speedup is None


def test_static_batches_of_four_are_bounded_by_their_longest() -> None:
    """Handbook 5.1: lengths 500 and three of 20, drawn four at a time."""
    requests = [lengths(place, 1, 20 if place % 4 else 500) for place in range(100)]
    found = summarise(requests, None, block_size=16).static_speedup

    assert found is not None
    assert found.value == pytest.approx(348.1 / 140, rel=1e-3)
    assert found.low < found.value < found.high
    assert found.source is Source.SIMULATED
