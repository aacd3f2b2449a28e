"""Prefix reuse on prompts that can be checked by hand."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.traffic.reuse.distances import lru_hit_blocks
from advisor.traffic.reuse.prefix import affinity_hit_share, chain_hashes, che_hit_share
from advisor.traffic.reuse.tally import BlockTally
from tests.fakes.token_rows import array, reuse_of, row

RNG = np.random.default_rng(3)
STABLE = RNG.integers(0, 9000, 400).tolist()


def test_a_hash_stands_for_its_block_and_everything_before_it() -> None:
    """Equal blocks behind different ones differ; a part of a block has no hash."""
    one, other = chain_hashes(array([1, 2, 5, 6, 9]), 2), chain_hashes(array([3, 4, 5, 6]), 2)

    assert len(one) == len(other) == 2
    assert one[1] != other[1]
    assert one[0] == chain_hashes(array([1, 2]), 2)[0]


def test_an_answer_is_cached_behind_its_prompt() -> None:
    """All of what was generated but the last token, which was never put in."""
    turns = [[1, 2, 3], [1, 2, 3, 4, 5, 6, 7]]
    found = reuse_of(turns, 2, outputs=[[4, 5, 6], [0]])
    shorter = reuse_of(turns, 2, outputs=[[4, 5], [0]])

    assert reuse_of(turns, 2).hits == (0, 2)
    assert found.hits == (0, 4)
    assert shorter.hits == (0, 4)
    assert reuse_of(turns, 2, outputs=[[4], [0]]).hits == (0, 2)


def test_block_ids_of_a_file_are_used_where_there_are_no_tokens() -> None:
    """The last, partial block is named by the file and served to nobody; size is the file's."""
    tally = BlockTally(16, file_block_tokens=512)
    rows = [(1100, (7, 8, 9)), (1100, (7, 8, 9)), (1024, (7, 8)), (600, (5, 6)), (50, None)]
    for place, (tokens, ids) in enumerate(rows):
        tally.add(row(place, prompt_tokens=tokens, block_ids=ids), None)
    found = tally.finish(range(5), [None] * 5, np.array([tokens for tokens, _ in rows]))

    assert found.block_size == 512
    assert found.hits == (0, 1024, 512, 0, None)
    assert found.reuse is not None
    assert found.reuse.ceiling.value == pytest.approx(1536 / 3824)
    assert found.reuse.first_difference is not None
    assert found.reuse.first_difference.early is None


def test_ids_wider_than_64_bit_still_tell_blocks_apart() -> None:
    """A keyed hash may have any width."""
    tally = BlockTally(16, file_block_tokens=4)
    for place in range(2):
        tally.add(row(place, prompt_tokens=9, block_ids=(2**64 - 1, 2**70 + 3)), None)

    assert tally.finish([0, 1], [None] * 2, np.array([9, 9])).hits == (0, 8)


def test_nothing_to_look_at_is_no_figure() -> None:
    """None, never zero; an upload of empty prompts too."""
    tally = BlockTally(16)
    tally.add(row(0, prompt_tokens=9), None)
    found = tally.finish([0], [None], np.array([9]))

    assert (found.hits, found.reuse) == ((None,), None)
    assert reuse_of([[]], 4).reuse is None
    with pytest.raises(InvalidInput):
        BlockTally(0)


def test_the_order_given_at_the_end_counts() -> None:
    """Hits, classes and lengths follow it."""
    tally = BlockTally(2)
    for place, prompt in enumerate(([1, 2, 3, 4, 5], [1, 2, 9])):
        tally.add(row(place), array(prompt))
    found = tally.finish([1, 0], ["short", "long"], np.array([3, 5]))

    assert found.hits == (0, 2)
    assert found.reuse is not None
    assert {name: item.value for name, item in found.reuse.by_class.items()} == {
        "long": 0.4,
        "short": 0.0,
    }


def test_a_small_cache_keeps_less() -> None:
    """Two prompts of ten blocks in turn: of a cache of 16 the other leaves the first six."""
    first, second = STABLE[:161], STABLE[200:361]
    found = reuse_of([first, second] * 4, 16).reuse

    assert found is not None
    assert found.distinct_blocks == 20
    by_size = {point.capacity_blocks: point.hit_share for point in found.curve}
    assert by_size[20] == pytest.approx(found.ceiling.value)
    assert by_size[16] == pytest.approx(0.6 * found.ceiling.value)
    assert "A cache of 304 tokens" in found.advice[-1]


def test_the_free_queue_takes_blocks_without_a_hash_first() -> None:
    """A partial block goes round; the prefix outlives what follows it."""
    chains = [[1, 2, 3], [4], [1, 2, 3]]
    used = [4, 2, 4]

    assert lru_hit_blocks(chains, [3, 1, 3], used, 5) == 3
    assert lru_hit_blocks(chains, [3, 1, 3], used, 4) == 2
    assert lru_hit_blocks(chains, [3, 1, 3], used, 3) == 0


def test_a_request_larger_than_the_cache_is_left_out() -> None:
    """The engine would refuse it: the others go on as if it were not there."""
    assert lru_hit_blocks([[1], [2, 3, 4], [1]], [1, 3, 1], [1, 3, 1], 2) == 1


def test_the_first_difference_is_found_to_the_token() -> None:
    """Inside the block at which the chains part, against the closest of the earlier prompts."""
    prompts = [STABLE[:100], [*STABLE[:70], 1, 2, 3], [*STABLE[:75], 4, 5], STABLE[:100]]
    found = reuse_of(prompts, 16).reuse

    assert found is not None
    assert found.first_difference is not None
    counts = dict(zip(found.first_difference.edges, found.first_difference.counts, strict=False))
    assert counts == {0: 1, 16: 0, 64: 3}
    assert found.first_difference.early == 0


def test_what_changes_at_the_head_is_named_with_its_place_and_price() -> None:
    """Three tokens of time in front of 400 stable ones: nothing is shared, nearly all could be."""
    prompts = [[50, 51, 9000 + n, 9100 + n, *STABLE, *range(9200 + n, 9210 + n)] for n in range(20)]
    found = reuse_of(prompts, 16).reuse

    assert found is not None
    assert found.ceiling.value == 0
    assert found.first_difference is not None
    assert found.first_difference.early == pytest.approx(0.95)
    assert found.first_difference.lost_share == pytest.approx(0.92, abs=0.04)
    assert "about token 2 (median)" in found.advice[0]
    assert "upper bound" in found.advice[0]


def test_a_stable_head_is_not_blamed() -> None:
    """A system prompt, then what differs: no advice on heads."""
    prompts = [[*STABLE, *RNG.integers(0, 9000, 60).tolist()] for _ in range(20)]
    found = reuse_of(prompts, 16).reuse

    assert found is not None
    assert found.first_difference is not None
    assert (found.first_difference.early, found.first_difference.lost_share) == (0, 0)
    assert not any("median" in said for said in found.advice)


def test_formulas_refuse_what_has_no_meaning() -> None:
    """No replica, no request, no rate."""
    with pytest.raises(InvalidInput):
        affinity_hit_share(0, 3, affine=True)
    with pytest.raises(InvalidInput):
        che_hit_share([], 3)
    with pytest.raises(InvalidInput):
        chain_hashes(array([1]), 0)
