"""The catalogue: keys, names that drivers give, links, sources, and what is not checked."""

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware import CATALOGUE, DATASHEETS, Link, card, card_named
from advisor.hardware.measured import MEASURED, SAME_UNITS, decode_line, measured_kernels
from advisor.units import GIB


@pytest.mark.parametrize(
    "reported,key",
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80-pcie"),
        ("NVIDIA GH200 480GB", "gh200-96"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
    ],
)
def test_a_driver_s_name_finds_its_card(reported: str, key: str) -> None:
    """Exactly, with or without the maker, slices by their card."""
    found = card_named(reported)

    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "reported",
    [
        "NVIDIA H100 NVL",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "A10",
        "",
    ],
)
def test_a_relative_with_other_figures_is_not_guessed(reported: str) -> None:
    """Other memory, other clocks: another card."""
    assert card_named(reported) is None


@pytest.mark.parametrize("key", CATALOGUE)
def test_every_figure_has_a_source_and_a_date(key: str) -> None:
    """Prices too; what nobody re-checked says so."""
    found = card(key)

    assert found.source
    assert found.date == "2026-11"
    assert found.price.source
    assert 0 < found.price.low <= found.price.centre <= found.price.high
    assert found.unchecked <= {"rates", "bandwidth", "memory", "link", "price"}
    assert found.facts is DATASHEETS[key]


@pytest.mark.parametrize("key", CATALOGUE)
def test_a_driver_reports_about_as_many_gib_as_the_maker_states_gb(key: str) -> None:
    """Firmware and error correction keep a part; decimal gigabytes would be 7 % less."""
    found = card(key)
    gib = found.facts.memory_bytes / GIB

    assert 0.9 * found.stated_memory_bytes / 1e9 <= gib <= found.stated_memory_bytes / 1e9


def test_compute_capability_orders_cards() -> None:
    """Numbers compare as numbers; AMD's names are of another kind."""
    assert card("rtx-4090").meets(8, 9)
    assert not card("a100-80-sxm").meets(8, 9)
    assert card("rtx-5090").meets(10)
    assert not card("mi300x").meets(7)


def test_a_link_carries_something() -> None:
    """And bidirectional headlines are halved: 900 GB/s of an H100 are 450 in one direction."""
    assert card("h100-sxm").link.bytes_per_s == 450e9
    assert not card("l40s").link.peer
    with pytest.raises(InvalidInput):
        Link(name="none", bytes_per_s=0, peer=False)


def test_an_unknown_card_lists_the_known_ones() -> None:
    """By key."""
    with pytest.raises(UnknownName, match="gh200-96"):
        card("h100")


def test_kernels_of_a_sibling_stand_in_and_say_so() -> None:
    """Same compute units, another memory; nothing for a card that has no relative."""
    own, of_sibling = measured_kernels("h100-sxm"), measured_kernels("gh200-96")

    assert own == (MEASURED["h100-sxm"], True)
    assert of_sibling == (MEASURED["h100-sxm"], False)
    assert measured_kernels("mi300x") is None
    assert set(SAME_UNITS.values()) <= set(MEASURED) <= set(CATALOGUE)


@pytest.mark.parametrize("key,width", [("h100-sxm", 2), ("h200-sxm", 1), ("b200", 2)])
def test_a_line_through_decode_attention_reproduces_its_points(key: str, width: int) -> None:
    """Latency and share give the measured share of the bandwidth back, within a tenth."""
    kernels = MEASURED[key]
    peak = kernels.bandwidth_bytes_per_s(key)
    points = [point for point in kernels.decode[width] if point.batch > 1]
    line = decode_line(kernels.decode[width], width, peak)

    for point in points:
        moved = point.batch * point.context * 2 * 8 * 128 * width
        took_s = line.latency_s + moved / (line.share * peak)
        assert moved / peak / took_s == pytest.approx(point.share, rel=0.1)
    assert 5e-6 < line.latency_s < 30e-6
    with pytest.raises(InvalidInput):
        decode_line(kernels.decode[width][:1], width, peak)
