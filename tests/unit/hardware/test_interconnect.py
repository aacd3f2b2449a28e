"""All-reduce tables: knots, what lies between and beyond them, and what cannot be a table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware import ALL_REDUCE, AllReduce, all_reduce
from advisor.hardware.interconnect import line


@pytest.mark.parametrize("key", ALL_REDUCE)
def test_a_table_gives_its_knots_back(key: tuple[str, int]) -> None:
    """And nothing for an empty message."""
    table = ALL_REDUCE[key]

    assert table.seconds(np.array(table.message_bytes)) == pytest.approx(np.array(table.latency_s))
    assert table.seconds(np.array([0.0]))[0] == 0.0
    assert table.source


@given(
    st.sampled_from(sorted(ALL_REDUCE)), st.floats(1, 2**31), st.floats(1.0, 4.0, exclude_min=True)
)
def test_a_longer_message_never_takes_less(
    key: tuple[str, int], size: float, factor: float
) -> None:
    """Below, between and beyond the knots; never below the floor."""
    table = ALL_REDUCE[key]
    short, long = table.seconds(np.array([size, size * factor]))

    assert table.floor_s <= short <= long * (1 + 1e-12)


def test_beyond_the_table_bytes_cost_the_bus() -> None:
    """Two directions of (p - 1) / p of the message."""
    table = ALL_REDUCE["h100-sxm", 8]
    more = np.diff(table.seconds(np.array([1e9, 2e9])))[0]

    assert more == pytest.approx(1e9 * 2 * 7 / 8 / 469e9)


def test_cards_with_the_same_links_share_a_table() -> None:
    """And other numbers of ranks have none."""
    assert all_reduce("a100-40-sxm", 4) is ALL_REDUCE["a100-80-sxm", 4]
    assert all_reduce("h100-sxm", 3) is None
    assert all_reduce("l4", 2) is None


def test_eight_ranks_on_pcie_are_a_thousand_times_slower_than_on_nvlink() -> None:
    """Trap 14 of handbook 13: 2 GB/s against 469 at a hundred MiB."""
    message = np.array([128.0 * 2**20])
    pcie, nvlink = (ALL_REDUCE[card, 8].seconds(message)[0] for card in ("l40s", "h100-sxm"))

    assert pcie / nvlink > 150


@pytest.mark.parametrize(
    "build",
    [
        lambda: line(ranks=1, floor_s=1e-6, bus_bytes_per_s=1e9, source="x"),
        lambda: AllReduce(
            ranks=2,
            floor_s=1e-6,
            bus_bytes_per_s=1e9,
            message_bytes=(1.0, 2.0),
            latency_s=(2e-6, 1e-6),
            source="x",
        ),
    ],
    ids=["one rank", "falling"],
)
def test_a_table_cannot_be_wrong(build: object) -> None:
    """Refused where it is made."""
    assert callable(build)
    with pytest.raises(InvalidInput):
        build()
