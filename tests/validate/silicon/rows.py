"""The silicon rows: which are admitted, their series, and the four that calibrate each.

The split was written down before any measured time was looked at, and depends on none: see `split`.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.validate.silicon.models import MODELS

FILE = "e2e_serving_aiconfigurator_silicon.csv"
CALIBRATION_POINTS = 4
LEAST_ROWS = 6
_LEFT_OUT = {"dup_of_earlier_row", "wip", "no_concurrency", "weights_exceed_memory"}
CARDS: Mapping[str, str] = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One model in one precision on so many ranks of one card."""

    model: str
    card: str
    precision: str
    ranks: int
    expert_ranks: int

    @property
    def kind(self) -> str:
        """What series of other numbers of ranks share."""
        return f"{self.model.rsplit('/', maxsplit=1)[-1]} {self.precision or '16 bit'} {self.card}"

    @property
    def name(self) -> str:
        experts = f" EP{self.expert_ranks}" if self.expert_ranks > 1 else ""
        return f"{self.kind} TP{self.ranks}{experts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured closed loop: mean TTFT and TPOT of its requests."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int
    ttft_s: float
    tpot_s: float
    identity: str

    @property
    def label(self) -> str:
        return f"{self.prompt_tokens} in, {self.output_tokens} out, concurrency {self.concurrency}"

    @property
    def in_flight_tokens(self) -> int:
        return self.concurrency * (self.prompt_tokens + self.output_tokens)


def read_series(path: Path) -> Mapping[Series, tuple[Row, ...]]:
    """Admitted vLLM rows of aggregated serving without data-parallel attention, six or more each.

    Left out: the flags that the data's README names, its 21 rows of Llama-3.1-8B-FP8, and GB200.
    """
    found: dict[Series, list[Row]] = defaultdict(list)
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if _admitted(row):
                found[_series(row)].append(_row(row))
    return {
        series: tuple(sorted(rows, key=_order))
        for series, rows in sorted(found.items(), key=lambda item: item[0].name)
        if len(rows) >= LEAST_ROWS
    }


def _admitted(row: Mapping[str, str]) -> bool:
    return (
        row["backend"] == "vllm"
        and row["mode"] == "agg"
        and row["model_path"] in MODELS
        and row["system"] in CARDS
        and row["attention_dp_size"] in {"", "1"}
        and not set(row["flags"].split(";")) & _LEFT_OUT
    )


def _series(row: Mapping[str, str]) -> Series:
    return Series(
        model=row["model_path"],
        card=CARDS[row["system"]],
        precision=row["precision"],
        ranks=int(row["tp_size"]),
        expert_ranks=int(row["moe_ep_size"] or 1),
    )


def _row(row: Mapping[str, str]) -> Row:
    return Row(
        prompt_tokens=int(row["isl"]),
        output_tokens=int(row["osl"]),
        concurrency=int(row["concurrency"]),
        ttft_s=float(row["ttft_ms"]) / 1e3,
        tpot_s=float(row["tpot_ms"]) / 1e3,
        identity=row["id"],
    )


def _order(row: Row) -> tuple[int, int, int, str]:
    return row.prompt_tokens, row.output_tokens, row.concurrency, row.identity


def split(rows: Sequence[Row]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(calibration, test) places in `rows`, by inputs only.

    Prompt, output and concurrency in logarithms, each scaled to the series' range. The first point
    is the smallest (least sum, then fewest tokens in flight); each further one lies farthest from
    its nearest chosen neighbour; ties go to more tokens in flight, then to the longer prompt, then
    to the earlier row.
    """
    places = np.log([[row.prompt_tokens, row.output_tokens, row.concurrency] for row in rows])
    span = np.ptp(places, axis=0)
    places = (places - places.min(axis=0)) / np.where(span > 0, span, 1)
    first = min(
        range(len(rows)), key=lambda index: (places[index].sum(), rows[index].in_flight_tokens)
    )
    chosen = [first]
    while len(chosen) < CALIBRATION_POINTS:
        gaps = np.linalg.norm(places[:, None] - places[None, chosen], axis=2).min(axis=1)

        def rank(index: int, gaps: np.ndarray = gaps) -> tuple[float, int, int, int]:
            row = rows[index]
            return round(gaps[index], 9), row.in_flight_tokens, row.prompt_tokens, -index

        free = [index for index in range(len(rows)) if index not in chosen]
        chosen.append(max(free, key=rank))
    return tuple(chosen), tuple(index for index in range(len(rows)) if index not in chosen)
