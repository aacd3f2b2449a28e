"""Devices: what a micro-benchmark measured, what a datasheet says, what others measured on it."""

from advisor.hardware.card import Card, Link
from advisor.hardware.catalogue import (
    A100_40_SXM,
    CATALOGUE,
    DATASHEETS,
    H100_SXM,
    TERA,
    card,
    card_named,
    datasheet,
    priced,
)
from advisor.hardware.device import DeviceFacts
from advisor.hardware.interconnect import ALL_REDUCE, AllReduce, all_reduce
from advisor.hardware.measured import MeasuredKernels, measured_kernels
from advisor.hardware.prices import Price, price_of_tokens, read_prices

__all__ = [
    "A100_40_SXM",
    "ALL_REDUCE",
    "CATALOGUE",
    "DATASHEETS",
    "H100_SXM",
    "TERA",
    "AllReduce",
    "Card",
    "DeviceFacts",
    "Link",
    "MeasuredKernels",
    "Price",
    "all_reduce",
    "card",
    "card_named",
    "datasheet",
    "measured_kernels",
    "price_of_tokens",
    "priced",
    "read_prices",
]
