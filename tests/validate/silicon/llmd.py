"""llm-d's replicas of Llama-3.1-70B on H100 as further rows for the closed loop; no target."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from advisor.roofline.closed_loop.fit import fit_load_tests
from advisor.roofline.closed_loop.forecast import forecasts
from advisor.roofline.closed_loop.load_test import LoadTest
from tests.bench.figures import Figure
from tests.validate.silicon.llmd_rows import LLMD_FILE, REQUESTS_EACH, read_llmd
from tests.validate.silicon.load_tests import AUTO, Setting
from tests.validate.silicon.rows import Row, Series, split


def _test(series: Series, rows: Sequence[Row]) -> LoadTest:
    setting = Setting(series=series, cache_dtype=AUTO, shortest=1.0, requests_each=REQUESTS_EACH)
    return setting.test(rows)


def llmd_figures(measurements: Path) -> Iterator[Figure]:
    """Errors of TPOT and TTFT on the rows that calibrate nothing, with and without calibration."""
    series = read_llmd(measurements / LLMD_FILE)
    parts = {one: split(rows) for one, rows in series.items()}
    fit = fit_load_tests(
        [_test(one, [rows[i] for i in parts[one][0]]) for one, rows in series.items()]
    )
    errors: list[tuple[float, float, float, float]] = []
    for place, (one, rows) in enumerate(series.items()):
        held = [rows[i] for i in parts[one][1]]
        test = _test(one, held)
        expected = fit.expect(place, test, test.points)
        for row, found, bare in zip(held, expected, forecasts(test), strict=True):
            errors.append(
                (
                    abs(found.times.tpot_s / row.tpot_s - 1),
                    abs(found.times.ttft_s / row.ttft_s - 1),
                    abs(bare.tpot_s.value / row.tpot_s - 1),
                    abs(bare.ttft_s.value / row.ttft_s - 1),
                )
            )
    names = ("tpot", "ttft", "uncalibrated_tpot", "uncalibrated_ttft")
    for name, values in zip(names, np.array(errors).T, strict=True):
        yield Figure(
            name=f"silicon_llmd_{name}_mape",
            value=float(values.mean()),
            unit="fraction",
            better="lower",
            detail=(
                f"{len(values)} rows of 1 to 8 replicas, TP2, TP4, TP8, concurrency 1 to 256; "
                f"median {float(np.median(values)):.3f}"
            ),
        )
