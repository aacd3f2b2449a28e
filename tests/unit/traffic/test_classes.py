"""Classes of requests: found where there are any, never invented, described in words."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from advisor.errors import InvalidInput
from advisor.traffic.classes.found import cluster, labelled
from advisor.traffic.facts import KINDS, Facts
from advisor.traffic.summary import TrafficTally, summarise
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.figures import columns_of
from tests.unit.traffic.rows import lengths, texts

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
ALIKE: dict[str, Draw] = {
    "lognormal": lambda rng, n: rng.lognormal(6, 1, n),
    "uniform": lambda rng, n: rng.uniform(1, 4_000, n),
    "geometric": lambda rng, n: rng.geometric(0.2, n).astype(float),
    "heavy tail": lambda rng, n: 100 * (1 + rng.pareto(1.5, n)),
    "normal": lambda rng, n: rng.normal(500, 50, n),
    "constant": lambda _, n: np.full(n, 128.0),
    "capped": lambda rng, n: np.minimum(rng.exponential(300, n), 512),
}


def mixture(seed: int, size: int) -> tuple[NDArray[np.int64], Facts]:
    """Three planted classes: short chats, long prompts with short and with long answers."""
    rng = np.random.default_rng(seed)
    planted = rng.choice(3, size, p=(0.6, 0.25, 0.15))
    prompts = rng.lognormal(np.array([4.5, 8, 8])[planted], 0.4)
    outputs = rng.lognormal(np.array([4, 3.5, 6.5])[planted], 0.4)
    return planted, columns_of(prompts, outputs)


@pytest.mark.parametrize("size", [30, 300, 6_000])
@pytest.mark.parametrize("draw", ALIKE.values(), ids=list(ALIKE))
def test_requests_that_are_alike_are_one_class(draw: Draw, size: int) -> None:
    """Whatever the form of the cloud, no structure is invented."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        found = cluster(columns_of(draw(rng, size), draw(rng, size)))

        assert len(found.classes) == 1
        assert found.classes[0].share == 1


@pytest.mark.parametrize("size", [300, 20_000])
def test_planted_classes_are_found(size: int) -> None:
    """Adjusted Rand index of at least 0.9; the largest comes first."""
    for seed in range(3):
        planted, facts = mixture(seed, size)
        found = cluster(facts)

        assert adjusted_rand_score(planted, found.codes) >= 0.9
        assert [item.name for item in found.classes] == [
            "short-context",
            "long-context-short-answers",
            "long-context-long-answers",
        ]
        sizes = [item.requests for item in found.classes]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) == size


def test_equal_facts_give_equal_classes() -> None:
    """The seed is an argument."""
    facts = mixture(1, 8_000)[1]
    one, other = cluster(facts), cluster(facts)

    assert one.classes == other.classes
    assert (one.codes == other.codes).all()
    assert [one.classes[code].name for code in one.codes[:5]] == list(one.names[:5])


def test_a_system_prompt_and_its_format_make_a_class() -> None:
    """Lengths are the same: what is asked for differs, and the sentence says so."""
    rng = np.random.default_rng(5)
    extraction = np.arange(400) % 4 == 0
    facts = columns_of(
        rng.lognormal(8.2, 0.3, 400),
        rng.lognormal(3.5, 0.3, 400),
        kind=np.full(400, KINDS.index(RequestKind.CHAT), dtype=np.int8),
        structured=extraction.astype(np.int8),
        head=np.where(extraction, 9, 0).astype(np.uint64),
    )
    found = cluster(facts)

    assert adjusted_rand_score(extraction, found.codes) == 1
    assert [item.name for item in found.classes] == ["long-chat", "long-json"]
    assert "that share one system prompt" in found.classes[1].description
    assert "JSON output" in found.classes[1].description
    assert "share" not in found.classes[0].description


def test_rare_properties_are_no_class() -> None:
    """Two of a hundred with tools join those most like them."""
    tools = np.zeros(100, dtype=np.int32)
    tools[:2] = 1

    assert len(cluster(columns_of(np.full(100, 50), np.full(100, 50), tools=tools)).classes) == 1


def test_characters_stand_in_for_unknown_counts() -> None:
    """For finding classes only: no token count comes of it."""
    facts = columns_of(
        np.full(200, -1), np.full(200, -1), text_chars=np.where(np.arange(200) % 2, 200, 20_000)
    )
    found = cluster(facts)

    assert len(found.classes) == 2
    assert all(item.prompt_tokens is None for item in found.classes)
    assert len({item.name for item in found.classes}) == 2


def test_there_are_never_many_classes() -> None:
    """Twelve properties times lengths end in eight classes at most."""
    heads = np.arange(1_200, dtype=np.uint64) % np.uint64(12) + np.uint64(1)
    found = cluster(columns_of(np.full(1_200, 100), np.full(1_200, 100), head=heads))

    assert len(found.classes) == 8
    assert sum(item.requests for item in found.classes) == 1_200
    assert len({item.name for item in found.classes}) == 8


def test_nothing_has_no_class() -> None:
    """An upload without requests."""
    assert cluster(columns_of([], [])).classes == ()


def test_classes_of_the_file_are_kept_and_described() -> None:
    """So are requests without one, beside others."""
    rows = [
        *(lengths(place, 3_900, 40, label="extract") for place in range(3)),
        lengths(3, 20, 600),
    ]
    found = summarise(rows, None, block_size=16)

    assert [(item.name, item.origin) for item in found.request_classes] == [
        ("extract", "label"),
        ("unlabelled", "label"),
    ]
    assert found.request_classes[0].traits == (
        "long prompts (median 3,900 tokens)",
        "short answers (median 40 tokens)",
    )
    assert labelled(columns_of([1], [1])) == ()


def test_found_classes_have_figures_of_their_own() -> None:
    """By class, as if the file had named them; a single one is no class."""
    planted, facts = mixture(2, 600)
    tally = TrafficTally(block_size=16)
    tally.add_facts(facts)
    found = tally.finish()
    alone = TrafficTally(block_size=16)
    alone.add_facts(facts.take(np.flatnonzero(planted == 0)))

    assert [item.label for item in found.classes] == sorted(
        item.name for item in found.request_classes
    )
    assert sum(item.requests for item in found.classes) == 600
    assert {item.origin for item in found.request_classes} == {"found"}
    assert len(alone.finish().request_classes) == 1
    assert alone.finish().classes == ()


def test_a_stored_class_of_ours_is_not_sought_again() -> None:
    """Requests that carry it keep it."""
    rows = (*texts(2, cluster="short-chat"), *texts(1, cluster="long-chat"))
    found = summarise(rows, None, block_size=16)

    assert [(item.name, item.origin) for item in found.request_classes] == [
        ("short-chat", "found"),
        ("long-chat", "found"),
    ]
    assert [item.label for item in found.classes] == ["long-chat", "short-chat"]


def test_classes_are_taken_over_or_not_sought() -> None:
    """From another tally of the same requests; stored requests have theirs."""
    facts = mixture(3, 400)[1]
    found, other, stored = (
        TrafficTally(block_size=16),
        TrafficTally(block_size=16),
        TrafficTally(block_size=16, find_classes=False),
    )
    for tally in (found, stored):
        tally.add_facts(facts)
    other.add_facts(columns_of(np.full(400, 9), np.full(400, 9)))
    other.adopt(found.clustering)

    assert len(found.finish().classes) == 3
    assert [item.label for item in other.finish().classes] == [
        item.label for item in found.finish().classes
    ]
    assert len(stored.finish().request_classes) == 1
    with pytest.raises(InvalidInput, match="clustering"):
        TrafficTally(block_size=16).adopt(found.clustering)
