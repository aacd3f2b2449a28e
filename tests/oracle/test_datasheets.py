"""GPU figures against the handbook's table, and against the traps of datasheets."""

import re
from pathlib import Path

import pytest

from advisor.errors import UnknownName
from advisor.estimate import Source
from advisor.hardware import CATALOGUE, DATASHEETS, datasheet

# Name here, and how the table of handbook section 10 begins its row.
ROWS = {
    "a10g": "A10G",
    "l4": "L4",
    "l40s": "L40S",
    "a100-40-sxm": "A100-40 SXM",
    "a100-80-sxm": "A100-80 SXM (PCIe)",
    "h100-sxm": "H100 SXM",
    "h100-pcie": "H100 PCIe",
    "h200-sxm": "H200 SXM",
    "b200": "B200",
    "gb200": "GB200 (per GPU)",
    "b300": "B300",
    "mi300x": "MI300X",
    "mi325x": "MI325X",
    "rtx-4090": "RTX 4090",
    "rtx-5090": "RTX 5090",
    "rtx-pro-6000": "RTX PRO 6000",
}
# Headlines with 2:4 sparsity, TFLOP/s, that handbook section 10 warns of.
SPARSE = {"h100-sxm": 3958, "l40s": 1466}


def numbers(cell: str) -> list[float | None]:
    """Figures of a cell before its first bracket; a dash is None."""
    parts = re.split(r"[/\u2013]", re.sub(r"\(.*?\)", "", cell).strip())
    return [float(part) if part.strip() else None for part in parts]


def rows(shared: Path) -> dict[str, list[str]]:
    """Cells of the table by the first one."""
    text = (shared / "handbook.md").read_text(encoding="utf-8")
    section = text[text.index("\n## 10.") : text.index("\n## 11.")]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in cells}


@pytest.mark.parametrize("name, title", ROWS.items())
def test_a_card_is_that_of_the_handbook(name: str, title: str, shared: Path) -> None:
    """Dense rates, bandwidth and memory; where a range is stated, its ends."""
    row = rows(shared)[title]
    device = DATASHEETS[name]
    rates = [
        estimate.value / 1e12 if (estimate := device.matrix_rate_flops_per_s.get(key)) else None
        for key in ("bfloat16", "float8", "int8")
    ]
    # An absent rate is a dash between slashes: an empty part on either side of it.
    stated = [None if cell == "\u2013" else numbers(cell)[0] for cell in _split(row[2])][:3]
    bandwidth = device.bandwidth_bytes_per_s

    assert rates == stated
    assert {bandwidth.low / 1e9, bandwidth.high / 1e9} == set(numbers(row[3]))
    assert CATALOGUE[name].stated_memory_bytes / 1e9 == numbers(row[4])[0]


def _split(cell: str) -> list[str]:
    return re.sub(r"\(.*?\)", "", cell).replace(" ", "").split("/")


def test_the_pcie_variant_has_its_own_bandwidth(shared: Path) -> None:
    """The figure in brackets of the same row."""
    cell = rows(shared)[ROWS["a100-80-sxm"]][3]
    inside = re.search(r"\((\d+)\)", cell)

    assert inside is not None
    assert DATASHEETS["a100-80-pcie"].bandwidth_bytes_per_s.value == float(inside.group(1)) * 1e9


@pytest.mark.parametrize("name, headline", SPARSE.items())
def test_no_rate_is_a_sparse_headline(name: str, headline: int) -> None:
    """The headline counts zeros that a dense model does not have: it is twice the dense rate."""
    rate = DATASHEETS[name].rate("float8").value / 1e12

    assert rate == pytest.approx(headline / 2, rel=1e-3)


@pytest.mark.parametrize("name", DATASHEETS)
def test_half_the_bits_at_most_double_the_dense_rate(name: str) -> None:
    """A factor of four over bfloat16 would be the sparse rate; int8 of consumer cards, which
    accumulate in integers, is not halved as their 16-bit rate is."""
    device = DATASHEETS[name]
    half = device.rate("bfloat16").value
    float8 = device.matrix_rate_flops_per_s.get("float8")

    assert float8 is None or float8.value <= 2.1 * half
    assert device.rate("int8").value <= 4.1 * half
    assert device.bandwidth_bytes_per_s.source is Source.LITERATURE


def test_an_unknown_card_lists_the_known_ones() -> None:
    """Exact look-up, no guessing by part of the name."""
    assert datasheet("h100-sxm") is DATASHEETS["h100-sxm"]
    with pytest.raises(UnknownName, match="a100-40-sxm"):
        datasheet("h100")
