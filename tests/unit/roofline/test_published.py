"""Priors that others published: where they apply, and what they say of a step."""

import pytest

from advisor.hardware import card
from advisor.roofline.published import (
    DRAFT_MODEL_ACCEPTANCE,
    ampere_kernel_share,
    narrow_cache_slowdown,
    on_unlike_text,
    unfused_unpack_s,
)
from advisor.roofline.step.efficiency import prior_efficiency


def test_fused_kernels_read_an_8_bit_cache_at_full_speed() -> None:
    """From 0.8 on, on Hopper and later."""
    slowdown = narrow_cache_slowdown((0, 32), card("h100-sxm"), grouped=True)

    assert (slowdown.low, slowdown.value, slowdown.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("release, key", [((0, 6), "h100-sxm"), ((0, 32), "a100-80-sxm")])
def test_elsewhere_a_narrow_cache_is_read_slower(release: tuple[int, int], key: str) -> None:
    """By older releases, and on older cards whatever the release."""
    assert narrow_cache_slowdown(release, card(key), grouped=True).value > 1


def test_an_a100_gains_less_of_a_narrow_cache() -> None:
    """It reads half the bytes at a lower share of its bandwidth; an H100 was measured."""
    older, newer = (prior_efficiency(card(key).facts) for key in ("a100-80-sxm", "h100-sxm"))

    assert older.cache_read(narrow=True)[0].value < older.cache_read(narrow=False)[0].value
    assert newer.cache_read(narrow=True)[0].value > 0.9 * newer.cache_read(narrow=False)[0].value


def test_a_card_without_8_bit_floats_converts_on_top() -> None:
    """And without grouped queries nothing is read twice."""
    older, newer = card("a100-80-sxm"), card("h100-sxm")
    both = narrow_cache_slowdown((0, 6), older, grouped=True).value

    assert both > narrow_cache_slowdown((0, 6), newer, grouped=True).value
    assert narrow_cache_slowdown((0, 6), newer, grouped=False).value == 1


def test_kernels_of_ampere_lose_on_hopper_alone() -> None:
    """Other cards run their own instructions."""
    assert ampere_kernel_share(card("h200-sxm")).value < 1
    assert ampere_kernel_share(card("a100-80-sxm")).value == 1
    assert ampere_kernel_share(card("l40s")).value == 1


def test_unlike_text_leaves_everything_open_up_to_what_was_published() -> None:
    """Nothing at the low end."""
    assumed = on_unlike_text(DRAFT_MODEL_ACCEPTANCE)

    assert assumed.low == 0
    assert assumed.high == DRAFT_MODEL_ACCEPTANCE.high
    assert assumed.low < assumed.value < DRAFT_MODEL_ACCEPTANCE.value


def test_unfused_weights_pass_the_memory_twice_more() -> None:
    """Half a byte read and two written per 4-bit weight: 8 B weights take 10 ms at 2 TB/s."""
    assert unfused_unpack_s(8_000_000_000, 4, 2e12) == pytest.approx(10e-3)
