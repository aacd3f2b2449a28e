"""Laws of prefix reuse and of drafting, against the slow way on small texts."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.traffic.drafting.drafts import Decoding, replays
from advisor.traffic.drafting.grams import Texts
from advisor.traffic.drafting.lookup import WINDOWS, LookupTally, ngram_replays, replay
from advisor.traffic.drafting.suffix import suffix_drafts
from advisor.traffic.reuse.distances import earlier_greater, lru_hit_blocks
from tests.fakes.exact_prefix import cached_tokens
from tests.fakes.token_rows import array, reuse_of, row

tokens = st.lists(st.integers(0, 2), max_size=24)
prompts = st.lists(tokens.filter(bool), min_size=1, max_size=12)
sizes = st.integers(1, 4)
pairs = st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6)


def chains_of(prompts: Sequence[Sequence[int]], size: int) -> list[list[tuple[int, ...]]]:
    """Every full block with all before it."""
    return [
        [tuple(prompt[: size * (place + 1)]) for place in range(len(prompt) // size)]
        for prompt in prompts
    ]


def lru_share(prompts: Sequence[Sequence[int]], size: int, capacity: int) -> float:
    """An LRU of blocks, one request after another, the head of a prompt touched last."""
    held: OrderedDict[tuple[int, ...], None] = OrderedDict()
    hits = 0
    for prompt, chain in zip(prompts, chains_of(prompts, size), strict=True):
        matched = 0
        while matched < (len(prompt) - 1) // size and chain[matched] in held:
            matched += 1
        hits += matched * size
        for block in reversed(chain):
            held.pop(block, None)
            held[block] = None
            if len(held) > capacity:
                held.popitem(last=False)
    return hits / sum(map(len, prompts))


@given(st.permutations(range(12)))
def test_earlier_greater_elements_are_counted(values: list[int]) -> None:
    """Against comparing all pairs."""
    found = earlier_greater(np.array(values))
    wanted = [sum(other > value for other in values[:at]) for at, value in enumerate(values)]

    assert found.tolist() == wanted


@given(prompts, sizes)
def test_the_curve_rises_to_the_ceiling_and_is_an_lru(prompts: list[list[int]], size: int) -> None:
    """At every capacity what a replay of that capacity gives; at the end what never forgets."""
    found = reuse_of(prompts, size)
    shares = [] if found.reuse is None else [point.hit_share for point in found.reuse.curve]

    assert found.hits == cached_tokens([tuple(prompt) for prompt in prompts], size)
    assert shares == sorted(shares)
    assert found.reuse is not None
    for point in found.reuse.curve:
        assert np.isclose(point.hit_share, lru_share(prompts, size, point.capacity_blocks))
    if shares:
        assert np.isclose(shares[-1], found.reuse.ceiling.value)


@given(prompts, st.integers(12, 30))
def test_the_free_queue_is_an_lru_beside_the_open_block(
    prompts: list[list[int]], capacity: int
) -> None:
    """With an open block at the end of every prompt one block is never hashed."""
    odd = [[*prompt[: len(prompt) // 2 * 2], 9] for prompt in prompts]
    codes: dict[tuple[int, ...], int] = {}
    chains = [[codes.setdefault(b, len(codes)) for b in chain] for chain in chains_of(odd, 2)]
    usable = [len(chain) for chain in chains]
    found = lru_hit_blocks(chains, usable, [n + 1 for n in usable], capacity + 1)

    assert np.isclose(2 * found / sum(map(len, odd)), lru_share(odd, 2, capacity))


@settings(max_examples=20)
@given(pairs)
def test_all_settings_at_once_are_those_one_by_one(rows: list[tuple[list[int], list[int]]]) -> None:
    """One table of occurrences serves every window, draft length and request."""
    texts = Texts.of([(array(prompt), array(output)) for prompt, output in rows])
    found = ngram_replays(texts, (1, 3, 8), WINDOWS)

    for (low, high), by_length in found.items():
        for k, table in by_length.items():
            for place, (prompt, output) in enumerate(rows):
                alone = replay(prompt, output, k=k, lookup_min=low, lookup_max=high)

                assert table.row(place) == alone


@given(tokens, tokens, st.integers(1, 4), st.integers(2, 30))
def test_no_draft_reaches_beyond_the_longest_text(
    prompt: list[int], output: list[int], k: int, most: int
) -> None:
    """The engine keeps a place for the token sampled behind a draft."""
    free = replay(prompt, output, k=k)
    held = replay(prompt, output, k=k, max_model_len=most)
    far = replay(prompt, output, k=k, max_model_len=len(prompt) + len(output) + k + 1)

    assert far == free
    assert held.accepted <= free.accepted
    assert held.accepted <= max(0, most - 1 - len(prompt) - 1)


@given(pairs, st.sampled_from(["ngram", "suffix"]))
def test_steps_and_accepted_tokens_make_the_output(
    rows: list[tuple[list[int], list[int]]], method: str
) -> None:
    """Each step says one token beside the accepted ones, but a last one that ends in a draft."""
    texts = Texts.of([(array(prompt), array(output)) for prompt, output in rows])
    at = Decoding.of(texts)
    tables = (
        replays(texts, at, suffix_drafts(texts, at), (3,))
        if method == "suffix"
        else ngram_replays(texts, (3,))[2, 4]
    )
    found = tables[3]
    over = found.decode_steps + found.accepted - np.maximum(0, found.output_tokens - 1)

    assert set(over.tolist()) <= {0, 1}
    assert (found.per_position.sum(axis=1) == found.accepted).all()
    assert (found.drafts <= found.decode_steps).all()
    assert (found.accepted <= found.draft_tokens).all()


@settings(max_examples=10)
@given(pairs, st.randoms())
def test_the_order_of_rows_changes_no_lookup(
    rows: list[tuple[list[int], list[int]]], random: object
) -> None:
    """Rows that come in another order are replayed in the order that is given at the end."""
    places = list(range(len(rows)))
    random.shuffle(places)  # type: ignore[attr-defined]
    first, second = LookupTally((2,)), LookupTally((2,))
    for place, (prompt, output) in enumerate(rows):
        first.add(row(place), array(prompt), array(output))
    for place in places:
        second.add(row(place), array(rows[place][0]), array(rows[place][1]))
    one = first.finish(range(len(rows)))
    other = second.finish([places.index(place) for place in range(len(rows))])

    assert one.of(range(len(rows)), 2) == other.of(range(len(rows)), 2)
    assert (one.sweep, one.suffix) == (other.sweep, other.suffix)
