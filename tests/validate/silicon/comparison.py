"""TTFT and TPOT of closed loops on H100, H200, B200 and B300 against our closed loop.

Four rows of each series calibrate a few scales of the step model, all others are predicted. The
split reads no measured time (`silicon_rows.split`); the form of the model was chosen by leaving
calibration points out, and the test rows were scored once per design (`DESIGNS_SCORED`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from advisor.estimate import Prediction
from advisor.roofline.calibration.conformal import Score, grouped_width
from advisor.roofline.closed_loop.fit import ROUNDS, Expected, LoadFit, fit_load_tests
from advisor.roofline.closed_loop.forecast import forecasts
from advisor.roofline.closed_loop.load_test import LoadTest
from tests.bench.figures import Figure
from tests.validate.report import Peer, Point, ValidationSet, summary
from tests.validate.silicon.llmd import llmd_figures
from tests.validate.silicon.load_tests import AUTO, FP8, Setting, stated_cache
from tests.validate.silicon.models import MODELS
from tests.validate.silicon.rows import FILE, LEAST_ROWS, Row, Series, read_series, split

DESIGNS_SCORED = 1
# The stated dtype of the cache holds unless the other one fits the calibration rows that much
# better: twice the logarithm of a ratio of 150 between their likelihoods.
_CLEARLY = 10.0
_QUICK = 2
_THREADS = 2
NOT_MODELLED = (
    "data-parallel attention and pipeline stages",
    "settings of the server that nobody published",
    "the client's own delays as its requests grow",
)
_NOTES = (
    (
        "The four rows of a series are chosen by inputs alone: the smallest, then each time the "
        "one farthest from those chosen, in logarithms of prompt, output and concurrency."
    ),
    (
        "Scales of series of one model, precision and card share a prior that all of them fit; no "
        "test row was used."
    ),
    (
        "Client and server settings are those of InferenceMAX's public scripts; the Qwen3-32B rows "
        "do not say theirs and are taken for alike."
    ),
    (
        "Rows of gpt-oss-120b on H100 at concurrency 512 look as if fewer requests ran at once "
        "than were in flight, which the data does not state; they calibrate, so that kind is "
        "predicted badly."
    ),
    (
        "Intervals of uncalibrated TTFT were widened once, by handbook 3.4's error of uncalibrated "
        "models, after their coverage had been seen; nothing else changed after test rows were "
        "scored."
    ),
    (
        "Mixtures and llm-d's replicas are figures beside the dense rows; their points are not "
        "pooled. llm-d's numbers of requests are not published: twenty per request in flight."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The series of one kind with their common fit: rows by series, the split, the tests."""

    series: tuple[Series, ...]
    rows: tuple[tuple[Row, ...], ...]
    tests: tuple[LoadTest, ...]
    fit: LoadFit
    cache_dtype: str

    @property
    def is_dense(self) -> bool:
        return MODELS[self.series[0].model].is_dense


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One test row: measured, calibrated and uncalibrated, as points by quantity."""

    dense: bool
    tpot: Point
    ttft: Point
    bare_tpot: Point
    bare_ttft: Point


def calibrated(kind: Sequence[Series], rows: Mapping[Series, tuple[Row, ...]]) -> Calibrated:
    """Fit the series of a kind to their calibration rows.

    Dense kinds under the likelier dtype of the cache; mixtures, which no target asks for, under the
    stated one and in fewer rounds.
    """
    dtype = stated_cache(kind[0])
    dense = MODELS[kind[0].model].is_dense
    fit, tests = _fitted(kind, rows, dtype, ROUNDS if dense else _QUICK)
    if dense:
        other = FP8 if dtype == AUTO else AUTO
        if _fitted(kind, rows, other, _QUICK)[0].misfit < fit.misfit - _CLEARLY:
            dtype = other
            fit, tests = _fitted(kind, rows, dtype, ROUNDS)
    return Calibrated(
        series=tuple(kind),
        rows=tuple(rows[series] for series in kind),
        tests=tests,
        fit=fit,
        cache_dtype=dtype,
    )


def _fitted(
    kind: Sequence[Series], rows: Mapping[Series, tuple[Row, ...]], dtype: str, rounds: int
) -> tuple[LoadFit, tuple[LoadTest, ...]]:
    tests = tuple(
        Setting(series=series, cache_dtype=dtype).test(
            [rows[series][place] for place in split(rows[series])[0]]
        )
        for series in kind
    )
    return fit_load_tests(tests, rounds=rounds), tests


def _scores(groups: Sequence[Calibrated]) -> tuple[list[Score], list[Score]]:
    """Held-out residuals of the calibration rows, of TPOT and of TTFT."""
    found: tuple[list[Score], list[Score]] = ([], [])
    for group in groups:
        for residuals, spreads in zip(group.fit.left_out, group.fit.left_out_spreads, strict=True):
            for quantity in range(2):
                found[quantity].append(
                    Score(
                        residual=float(residuals[quantity]),
                        spread=float(spreads[quantity]),
                        groups=(group.series[0].kind,),
                    )
                )
    return found


def _point(
    series: Series, row: Row, quantity: str, *, expected: Expected, scores: Sequence[Score]
) -> Point:
    tpot = quantity == "TPOT"
    width = grouped_width(scores)
    return Point(
        series=series.name,
        label=f"{quantity}, {row.label}",
        measured=row.tpot_s if tpot else row.ttft_s,
        predicted=width.around(
            expected.times.tpot_s if tpot else expected.times.ttft_s,
            scale=expected.tpot_spread if tpot else expected.ttft_spread,
            about="closed loop, four calibration points",
            not_modelled=NOT_MODELLED,
        ),
    )


def _bare(series: Series, row: Row, quantity: str, predicted: Prediction) -> Point:
    return Point(
        series=series.name,
        label=f"{quantity} uncalibrated, {row.label}",
        measured=row.tpot_s if quantity == "TPOT" else row.ttft_s,
        predicted=predicted,
    )


def score(groups: Sequence[Calibrated]) -> list[Scored]:
    """Every row that did not calibrate, predicted with and without calibration."""
    tpot_scores, ttft_scores = _scores(groups)
    found = []
    for group in groups:
        for place, (series, rows) in enumerate(zip(group.series, group.rows, strict=True)):
            held = [rows[index] for index in split(rows)[1]]
            test = Setting(series=series, cache_dtype=group.cache_dtype).test(held)
            bare_test = Setting(series=series, cache_dtype=stated_cache(series)).test(held)
            expected = group.fit.expect(place, test, test.points)
            for row, one, bare in zip(held, expected, forecasts(bare_test), strict=True):
                found.append(
                    Scored(
                        dense=group.is_dense,
                        tpot=_point(series, row, "TPOT", expected=one, scores=tpot_scores),
                        ttft=_point(series, row, "TTFT", expected=one, scores=ttft_scores),
                        bare_tpot=_bare(series, row, "TPOT", bare.tpot_s),
                        bare_ttft=_bare(series, row, "TTFT", bare.ttft_s),
                    )
                )
    return found


def naive_errors(rows: Sequence[Row]) -> list[float]:
    """TPOT of the test rows by four features and non-negative least squares on the four rows.

    ``a + b c + d c P / L + e c (P + L / 2)``: fixed, per request, prompts of others, cache.
    """
    features = np.array(
        [
            [
                1.0,
                row.concurrency,
                row.concurrency * row.prompt_tokens / row.output_tokens,
                row.concurrency * (row.prompt_tokens + row.output_tokens / 2),
            ]
            for row in rows
        ]
    )
    seconds = np.array([row.tpot_s for row in rows])
    calibration, held = (list(places) for places in split(rows))
    weighted = features[calibration] / seconds[calibration, None]
    scale = weighted.max(axis=0)
    weights, _ = nnls(weighted / scale, np.ones(len(calibration)))
    predicted = features[held] @ (weights / scale)
    return [float(error) for error in np.abs(predicted / seconds[held] - 1)]


def _figures(
    groups: Sequence[Calibrated], scored: Sequence[Scored], rows: Mapping[Series, tuple[Row, ...]]
) -> Iterator[Figure]:
    for dense, name in ((True, "dense"), (False, "mixture")):
        found = [one for one in scored if one.dense is dense]
        series = sum(len(group.series) for group in groups if group.is_dense is dense)
        yield Figure(
            name=f"silicon_{name}_series",
            value=series,
            unit="series",
            better="higher",
            detail=f"model x precision x TP of at least {LEAST_ROWS} admitted vLLM rows",
        )
        for quantity in ("tpot", "ttft"):
            yield from _quantity(name, quantity, found)
    naive = [
        error
        for group in groups
        if group.is_dense
        for series in group.series
        for error in naive_errors(rows[series])
    ]
    yield Figure(
        name="silicon_dense_naive_tpot_mape",
        value=float(np.mean(naive)),
        unit="fraction",
        better="lower",
        detail="four features by non-negative least squares on the same four rows",
    )


def _quantity(name: str, quantity: str, found: Sequence[Scored]) -> Iterator[Figure]:
    points = [one.tpot if quantity == "tpot" else one.ttft for one in found]
    bare = summary([one.bare_tpot if quantity == "tpot" else one.bare_ttft for one in found])
    said = summary(points)
    prefix = f"silicon_{name}"
    detail = (
        f"{said.points} rows; median {said.median_error:.3f}, 90th percentile "
        f"{said.p90_error:.3f}; designs scored on them: {DESIGNS_SCORED}"
    )
    yield Figure(
        name=f"{prefix}_{quantity}_mape",
        value=said.mean_error,
        unit="fraction",
        better="lower",
        detail=detail,
    )
    yield Figure(
        name=f"{prefix}_{quantity}_coverage",
        value=said.coverage,
        unit="fraction",
        better="higher",
        detail=f"90 % intervals; high/low {said.width:.2f} in the median",
    )
    yield Figure(
        name=f"{prefix}_uncalibrated_{quantity}_mape",
        value=bare.mean_error,
        unit="fraction",
        better="lower",
        detail=(
            f"no row of the data used; median {bare.median_error:.3f}; 90 % intervals of the "
            f"priors cover {bare.coverage:.3f}, high/low {bare.width:.2f} in the median"
        ),
    )


def validation(measurements: Path) -> ValidationSet:
    """All series, the dense ones as points; mixtures are figures beside them."""
    rows = read_series(measurements / FILE)
    kinds: dict[str, list[Series]] = defaultdict(list)
    for series in rows:
        kinds[series.kind].append(series)
    with ThreadPoolExecutor(_THREADS) as pool:
        groups = list(pool.map(lambda kind: calibrated(kind, rows), kinds.values()))
        halves = [[group for group in groups if group.is_dense is dense] for dense in (True, False)]
        further = pool.submit(lambda: tuple(llmd_figures(measurements)))
        scored = [one for half in pool.map(score, halves) for one in half]
    dtypes = "; ".join(f"{g.series[0].kind}: {g.cache_dtype}" for g in groups if g.is_dense)
    return ValidationSet(
        name="silicon",
        title="Closed loops on H100, H200 and B200 (aiconfigurator's silicon rows)",
        what=(
            "vLLM under a closed loop of 4 to 128 requests, 1,024 to 8,192 tokens in and 128 to "
            "8,192 out; mean TTFT and TPOT predicted from four rows of each series"
        ),
        points=tuple(point for one in scored if one.dense for point in (one.tpot, one.ttft)),
        figures=(*_figures(groups, scored, rows), *further.result()),
        not_modelled=NOT_MODELLED,
        peers=(
            Peer(
                name="aiconfigurator 0.12",
                figure="TPOT 8.2 %, TTFT 41 % on dense rows; mixtures TPOT 25 to 110 %",
                source="peers.md section 6, measured on a machine like this one",
            ),
            Peer(name="naive fit", figure="TPOT 10.5 %", source="issue 5"),
            Peer(
                name="BLIS f90a1e3",
                figure="TPOT 22.5 to 44 %, TTFT 60 to 68 %",
                source="peers.md section 6",
            ),
        ),
        notes=(
            *_NOTES,
            f"Dtype of the cache, the stated one unless calibration rows clearly differ: {dtypes}.",
        ),
    )
