"""TTFT and TPOT of a closed loop before anything was measured, with what the priors leave open."""

import math
from dataclasses import dataclass

from advisor.estimate import Prediction, Source
from advisor.roofline.closed_loop.fit import TPOT_ERROR, TTFT_ERROR, Expected, unfitted
from advisor.roofline.closed_loop.load_test import LoadPoint, LoadTest
from advisor.roofline.closed_loop.loop import ClosedLoop, LoopTimes
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.rooflinestep import NOT_MODELLED
from advisor.roofline.step.served import ServedModel

_NORMAL_90 = 1.645
# Handbook 3.4: 30 to 60 % before any calibration, and TTFT is what engines differ in most.
_TTFT_UNCALIBRATED = 0.4
_BASIS = "90 % interval: priors of kernel shares and fixed costs carried through the loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopForecast:
    """Mean TTFT and TPOT of a test's requests in seconds, and the loop as the centre plays it."""

    ttft_s: Prediction
    tpot_s: Prediction
    times: LoopTimes


def forecast(
    served: ServedModel, machine: Machine, loop: ClosedLoop, *, requests: int
) -> LoopForecast:
    """What a load test of `requests` requests would show on the machine's assumed shares.

    The loop's delays are taken from the assumed scales; its `cache_tokens` is the memory model's.
    """
    # Expectations do not read measured times; a point needs some.
    point = LoadPoint(loop=loop, requests=requests, ttft_s=1.0, tpot_s=1.0)
    return forecasts(LoadTest(served=served, machine=machine, points=(point,)))[0]


def forecasts(test: LoadTest) -> tuple[LoopForecast, ...]:
    """As `forecast`, of all loops of a test at once; its measured times are not read."""
    expected = unfitted(test).expect(0, test, test.points)
    return tuple(_said(one, test.served) for one in expected)


def _said(expected: Expected, served: ServedModel) -> LoopForecast:
    times, left_out = expected.times, (*NOT_MODELLED, *served.model.notes)

    def around(value: float, log_sd: float) -> Prediction:
        factor = math.exp(_NORMAL_90 * log_sd)
        return Prediction(
            value=value,
            low=value / factor,
            high=value * factor,
            source=Source.ROOFLINE,
            basis=_BASIS,
            not_modelled=left_out,
        )

    return LoopForecast(
        ttft_s=around(
            times.ttft_s, math.hypot(expected.ttft_spread * TTFT_ERROR, _TTFT_UNCALIBRATED)
        ),
        tpot_s=around(times.tpot_s, expected.tpot_spread * TPOT_ERROR),
        times=times,
    )
