"""Which requests belong together because their prompts begin alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.traffic.reuse.kinship import (
    TEMPLATE_REQUESTS,
    Chains,
    chains_of,
    family_keys,
    hit_blocks,
    passes,
    weld,
)
from advisor.traffic.reuse.prefix import chain_hashes
from tests.fakes.exact_prefix import cached_tokens
from tests.unit.traffic.rows import columns, lengths, texts

ids = st.lists(st.integers(0, 2), max_size=24)


def families(rows: list[list[int]], classes: list[int] | None = None) -> list[list[int]]:
    """Places by family of prompts that are given as names of blocks."""
    found = family_keys(
        Chains.of(rows, 16), None if classes is None else np.array(classes, dtype=np.int32)
    )
    return [group.tolist() for group in weld(found)]


@given(st.lists(ids, min_size=1, max_size=8))
def test_blocks_that_were_seen_are_those_of_an_unlimited_cache(prompts: list[list[int]]) -> None:
    """As the replay counts them, but for the last token, which is always computed."""
    rows = [chain_hashes(np.array(prompt, dtype=np.int32), 4) for prompt in prompts]
    hits = hit_blocks(Chains.of(rows, 4))
    whole = cached_tokens([tuple(prompt) for prompt in prompts], 4)
    seen = [
        min(4 * int(count), max(0, (len(prompt) - 1) // 4 * 4))
        for count, prompt in zip(hits, prompts, strict=True)
    ]

    assert seen == list(whole)


@given(ids, ids)
def test_equal_beginnings_have_equal_hashes_and_others_do_not(
    one: list[int], other: list[int]
) -> None:
    """Block by block."""
    pair = [chain_hashes(np.array(row, dtype=np.int32), 4) for row in (one, other)]

    for at, (mine, theirs) in enumerate(zip(*pair, strict=False), start=1):
        assert (mine == theirs) is np.bool_(one[: 4 * at] == other[: 4 * at])


def test_a_document_that_two_ask_about_makes_a_family() -> None:
    """They share three of four blocks; a third has one in common and is no relative."""
    assert families([[1, 2, 3, 40], [1, 2, 3, 50], [1, 60, 61, 62]]) == [[0, 1], [2]]


def test_turns_without_a_session_id_are_a_family() -> None:
    """Each prompt begins with the one before, whole."""
    assert families([[1], [1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8]]) == [[0, 1, 2]]


def test_a_system_prompt_that_everybody_has_welds_nobody() -> None:
    """Nine tenths of every prompt are shared, and still every request stands for itself."""
    shared = list(range(1, 10))
    rows = [[*shared, 1000 + at] for at in range(40)]

    assert families(rows) == [[at] for at in range(40)]


def test_a_document_behind_a_system_prompt_makes_a_family() -> None:
    """Only what stands behind the template counts."""
    shared = list(range(1, 10))
    rows = [[*shared, 100 + at // 2, 200 + at // 2, 1000 + at] for at in range(40)]

    assert families(rows) == [[at, at + 1] for at in range(0, 40, 2)]


def test_the_system_prompt_of_one_class_is_a_template_of_its_own() -> None:
    """Twelve of a thousand requests are few, but they are a whole class."""
    rows = [[1, 2, 3, 1000 + at] for at in range(TEMPLATE_REQUESTS)]
    rows += [[5000 + at, 5000 + at + 1] for at in range(0, 2000, 2)]
    classes = [1] * TEMPLATE_REQUESTS + [0] * 1000

    assert len(families(rows, classes)) == len(rows)
    assert len(families(rows)) == len(rows) - TEMPLATE_REQUESTS + 1


def test_prompts_of_the_template_alone_are_no_family() -> None:
    """There is nothing behind it that could be shared."""
    assert families([[1, 2]] * 30) == [[at] for at in range(30)]


def test_chains_come_from_tokens_else_from_the_files_blocks() -> None:
    """And from neither there are none."""
    requests = texts(2)
    by_token = chains_of(requests, columns([range(40), None]))
    by_block = chains_of(
        [lengths(0, 20, 1, block_ids=(7, 8)), lengths(1, 20, 1)], None, file_block_tokens=512
    )

    assert by_token is not None
    assert by_token.blocks.tolist() == [2, 0]
    assert by_block is not None
    assert (by_block.values.tolist(), by_block.block_tokens) == ([7, 8], 512)
    assert chains_of(requests, None) is None
    assert passes(Chains.of([[], []], 16)).tolist() == []


def test_rows_can_be_taken_in_any_order() -> None:
    """With their own blocks."""
    taken = Chains.of([[1, 2], [], [3]], 16).take(np.array([2, 0]))

    assert taken.values.tolist() == [3, 1, 2]
    assert taken.offsets.tolist() == [0, 1, 3]


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_to_weld_is_no_group(size: int) -> None:
    """No row, no group; one row, its own."""
    assert [group.tolist() for group in weld([()] * size)] == [[0]][:size]
