"""Cards by what their datasheets say (handbook section 10): dense rates, and nothing sparse.

A headline with 2:4 sparsity is twice the dense rate; GeForce cards halve the rate when they
accumulate in 32 bit, which inference does. Makers call GiB GB and firmware keeps a part: the memory
of a card here is what the driver reports, the maker's figure is beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from advisor.errors import UnknownName
from advisor.hardware.card import Card, Link, Unchecked, datasheet_facts
from advisor.hardware.device import DeviceFacts
from advisor.hardware.prices import Price
from advisor.units import GB, GIB

TERA = 10**12
DATE = "2026-11"
_RATES = ("bfloat16", "float8", "int8", "float4")
_SPECS = "datasheet as encoded in aiconfigurator 095f58a"
_TABLE = "datasheet, handbook section 10"
_MARKET = "mercatus-ai.com, aimultiple.com/gpu-index (May 2026), gerra.com"
_PCIE4 = Link(name="PCIe 4.0 x16", bytes_per_s=32 * GB, peer=False)
_PCIE5 = Link(name="PCIe 5.0 x16", bytes_per_s=64 * GB, peer=False)


def _nvlink(gb_per_s: float) -> Link:
    return Link(name="NVLink", bytes_per_s=gb_per_s * GB, peer=True)


def _card(  # noqa: PLR0913
    key: str,
    name: str,
    *,
    capability: str,
    tflops: tuple[float | None, float | None, float | None, float | None],
    gb_per_s: float | tuple[float, float],
    memory_gb: float,
    reported_gib: float,
    link: Link,
    watts: float,
    price: tuple[float, float] | tuple[float, float, float],
    names: tuple[str, ...],
    unchecked: tuple[Unchecked, ...] = (),
    maker: str = "NVIDIA",
    source: str = _SPECS,
) -> Card:
    """One row; `tflops` are dense rates by `_RATES`, None: not in the hardware.

    `price` is the range per hour, then its median where that is known.
    """
    rates = {
        dtype: rate * TERA for dtype, rate in zip(_RATES, tflops, strict=True) if rate is not None
    }
    rates["float16"] = rates["bfloat16"]
    return Card(
        key=key,
        facts=datasheet_facts(
            name,
            memory_bytes=round(reported_gib * GIB),
            bandwidth_bytes_per_s=(
                (gb_per_s[0] * GB, gb_per_s[1] * GB)
                if isinstance(gb_per_s, tuple)
                else (gb_per_s * GB, gb_per_s * GB)
            ),
            rates=rates,
            basis=f"{maker} {name} datasheet, dense",
        ),
        compute_capability=capability,
        stated_memory_bytes=round(memory_gb * GB),
        watts=watts,
        link=link,
        price=Price(
            low=price[0],
            high=price[1],
            median=price[2] if len(price) > 2 else None,  # noqa: PLR2004
            source=_MARKET,
            date=DATE,
        ),
        source=f"{maker} {source}",
        date=DATE,
        reported_names=names,
        unchecked=frozenset(unchecked),
    )


_CARDS = (
    _card(
        *("a10g", "A10G"),
        capability="8.6",
        tflops=(70, None, 140, None),
        gb_per_s=600,
        memory_gb=24,
        reported_gib=22.1,
        link=_PCIE4,
        watts=300,
        price=(0.75, 1.3),
        names=("A10G",),
        unchecked=("memory", "price"),
        source=_TABLE,
    ),
    _card(
        *("l4", "L4"),
        capability="8.9",
        tflops=(121, 242, 242, None),
        gb_per_s=300,
        memory_gb=24,
        reported_gib=22.1,
        link=_PCIE4,
        watts=72,
        price=(0.4, 1.0),
        names=("L4",),
        unchecked=("memory", "price"),
    ),
    _card(
        *("l40s", "L40S"),
        capability="8.9",
        tflops=(362, 733, 733, None),
        gb_per_s=864,
        memory_gb=48,
        reported_gib=44.4,
        link=_PCIE4,
        watts=350,
        price=(0.7, 2.0),
        names=("L40S",),
        unchecked=("price",),
    ),
    _card(
        *("a100-40-sxm", "A100 40GB SXM"),
        capability="8.0",
        tflops=(312, None, 624, None),
        gb_per_s=1555,
        memory_gb=40,
        reported_gib=39.5,
        link=_nvlink(300),
        watts=400,
        price=(0.6, 2.0),
        names=("A100-SXM4-40GB",),
        unchecked=("price",),
        source=_TABLE,
    ),
    _card(
        *("a100-80-sxm", "A100 80GB SXM"),
        capability="8.0",
        tflops=(312, None, 624, None),
        gb_per_s=2039,
        memory_gb=80,
        reported_gib=79.2,
        link=_nvlink(300),
        watts=400,
        price=(0.80, 3.00),
        names=("A100-SXM4-80GB",),
    ),
    _card(
        *("a100-80-pcie", "A100 80GB PCIe"),
        capability="8.0",
        tflops=(312, None, 624, None),
        gb_per_s=1935,
        memory_gb=80,
        reported_gib=79.2,
        link=_PCIE4,
        watts=300,
        price=(0.80, 3.00),
        names=("A100 80GB PCIe", "A100-PCIE-80GB"),
    ),
    _card(
        *("h100-sxm", "H100 SXM"),
        capability="9.0",
        tflops=(989, 1979, 1979, None),
        gb_per_s=3350,
        memory_gb=80,
        reported_gib=79.2,
        link=_nvlink(450),
        watts=700,
        price=(1.99, 5.00, 2.95),
        names=("H100 80GB HBM3",),
    ),
    _card(
        *("h100-pcie", "H100 PCIe"),
        capability="9.0",
        tflops=(756, 1513, 1513, None),
        gb_per_s=2000,
        memory_gb=80,
        reported_gib=79.2,
        link=_PCIE5,
        watts=350,
        price=(1.9, 3.5),
        names=("H100 PCIe",),
        unchecked=("price",),
    ),
    _card(
        *("gh200-96", "GH200 96GB"),
        capability="9.0",
        tflops=(989, 1979, 1979, None),
        gb_per_s=4000,
        memory_gb=96,
        reported_gib=94.5,
        link=_nvlink(450),
        watts=1000,
        price=(1.5, 6.0),
        names=("GH200 480GB", "GH200 96GB HBM3", "GH200 120GB"),
        unchecked=("rates", "bandwidth", "memory", "link", "price"),
        source="datasheet from general knowledge",
    ),
    _card(
        *("h200-sxm", "H200 SXM"),
        capability="9.0",
        tflops=(989, 1979, 1979, None),
        gb_per_s=4800,
        memory_gb=141,
        reported_gib=139.8,
        link=_nvlink(450),
        watts=700,
        price=(2.50, 7.00),
        names=("H200", "H200 SXM"),
    ),
    _card(
        *("b200", "B200"),
        capability="10.0",
        tflops=(2250, 4500, 4500, 9000),
        gb_per_s=(7700, 8000),
        memory_gb=180,
        reported_gib=178.4,
        link=_nvlink(900),
        watts=1000,
        price=(3, 10),
        names=("B200",),
        unchecked=("memory", "price"),
    ),
    _card(
        *("gb200", "GB200, one GPU"),
        capability="10.0",
        tflops=(2500, 5000, 5000, 10000),
        gb_per_s=8000,
        memory_gb=186,
        reported_gib=184.5,
        link=_nvlink(900),
        watts=1200,
        price=(5, 12),
        names=("GB200",),
        unchecked=("price",),
    ),
    _card(
        *("b300", "B300"),
        capability="10.3",
        tflops=(2250, 4500, 153, 14000),
        gb_per_s=7750,
        memory_gb=288,
        reported_gib=267.7,
        link=_nvlink(900),
        watts=1100,
        price=(5, 12),
        names=("B300", "B300 SXM6 AC"),
        unchecked=("memory", "price"),
    ),
    _card(
        *("mi300x", "MI300X"),
        capability="gfx942",
        tflops=(1307, 2615, 2615, None),
        gb_per_s=5300,
        memory_gb=192,
        reported_gib=192.0,
        link=Link(name="xGMI, 7 links", bytes_per_s=7 * 64 * GB, peer=True),
        watts=750,
        price=(1.71, 5.0),
        names=("Instinct MI300X", "Instinct MI300X OAM"),
        unchecked=("memory",),
        maker="AMD",
        source=_TABLE,
    ),
    _card(
        *("mi325x", "MI325X"),
        capability="gfx942",
        tflops=(1307, 2615, 2615, None),
        gb_per_s=6000,
        memory_gb=256,
        reported_gib=256.0,
        link=Link(name="xGMI, 7 links", bytes_per_s=7 * 64 * GB, peer=True),
        watts=1000,
        price=(2, 5),
        names=("Instinct MI325X",),
        unchecked=("memory", "price"),
        maker="AMD",
        source=_TABLE,
    ),
    _card(
        *("rtx-4090", "RTX 4090"),
        capability="8.9",
        tflops=(165, 330, 661, None),
        gb_per_s=1008,
        memory_gb=24,
        reported_gib=23.516,
        link=_PCIE4,
        watts=450,
        price=(0.3, 0.7),
        names=("GeForce RTX 4090",),
        unchecked=("price",),
        source=_TABLE,
    ),
    _card(
        *("rtx-5090", "RTX 5090"),
        capability="12.0",
        tflops=(210, 419, 838, 1676),
        gb_per_s=1792,
        memory_gb=32,
        reported_gib=31.4,
        link=_PCIE5,
        watts=575,
        price=(0.5, 1.0),
        names=("GeForce RTX 5090",),
        unchecked=("memory", "price"),
        source=_TABLE,
    ),
    _card(
        *("rtx-pro-6000", "RTX PRO 6000"),
        capability="12.0",
        tflops=(468, 936, 936, 1871),
        gb_per_s=1792,
        memory_gb=96,
        reported_gib=95.0,
        link=_PCIE5,
        watts=600,
        price=(1, 2.5),
        names=(
            "RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell Workstation Edition",
        ),
        unchecked=("memory", "price"),
    ),
)
CATALOGUE: Mapping[str, Card] = MappingProxyType({card.key: card for card in _CARDS})
DATASHEETS: Mapping[str, DeviceFacts] = MappingProxyType({card.key: card.facts for card in _CARDS})
H100_SXM = DATASHEETS["h100-sxm"]
A100_40_SXM = DATASHEETS["a100-40-sxm"]
_MAKERS = ("nvidia ", "amd ")
_BY_NAME: Mapping[str, Card] = {
    name.lower(): card for card in _CARDS for name in (card.title, *card.reported_names)
}


def card(key: str) -> Card:
    """Exact look-up by key; raises `UnknownName` that lists the known ones."""
    try:
        return CATALOGUE[key]
    except KeyError:
        raise UnknownName("hardware", key, sorted(CATALOGUE)) from None


def datasheet(name: str) -> DeviceFacts:
    """What the datasheet of a card says; raises as `card`."""
    return card(name).facts


def card_named(reported: str) -> Card | None:
    """The card that a driver, or this catalogue, calls so; None for any other name.

    ``NVIDIA H100 80GB HBM3`` is ``h100-sxm``. Variants with other memory or clocks (``H100 NVL``,
    ``RTX 4090 D``, laptops) are other cards and not guessed. A MIG slice is found by its card.
    """
    name = reported.strip().lower()
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return _BY_NAME.get(name.partition(" mig ")[0].strip())


def priced(prices: Mapping[str, Price]) -> Mapping[str, Card]:
    """The catalogue with prices of the user's own; an unknown card raises `UnknownName`."""
    for key in prices:
        card(key)
    return {
        key: replace(found, price=prices[key]) if key in prices else found
        for key, found in CATALOGUE.items()
    }
