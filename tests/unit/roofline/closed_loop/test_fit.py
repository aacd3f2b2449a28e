"""Scales of a step model from four load points, with planted truths."""

import numpy as np
import pytest

from advisor.roofline.closed_loop.fit import LoadFit, fit_load_tests
from advisor.roofline.closed_loop.load_test import LoadPoint, LoadTest, play
from advisor.roofline.closed_loop.loop import ClosedLoop
from advisor.roofline.closed_loop.scales import (
    GRAPH_TOKENS,
    Scales,
    assumed_scales,
    from_logs,
    scaled_tables,
)
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.served import ServedModel
from tests.fakes.published_models import LLAMA_31_8B

SERVED = ServedModel(model=LLAMA_31_8B)
MACHINE = Machine(
    bandwidth_bytes_per_s=3.35e12,
    rate_flops_per_s=989e12,
    memory=0.8,
    compute=0.7,
    cache=0.8,
    attention=0.5,
    overhead_s=1e-3,
)
SHAPES = ((512, 256, 4), (512, 256, 64), (4096, 256, 64), (512, 1500, 64))
FURTHER = ((2048, 256, 16), (512, 1500, 16), (4096, 256, 16), (2048, 512, 32))


def _points(shapes: tuple[tuple[int, int, int], ...]) -> tuple[LoadPoint, ...]:
    return tuple(
        LoadPoint(
            loop=ClosedLoop(
                concurrency=count,
                prompt_tokens=prompt,
                output_tokens=output,
                max_num_batched_tokens=8192,
                max_num_seqs=256,
                shortest=0.8,
                lag_steps=2,
            ),
            requests=6 * count,
            ttft_s=1.0,
            tpot_s=1.0,
        )
        for prompt, output, count in shapes
    )


def _measured(scales: Scales, shapes: tuple[tuple[int, int, int], ...]) -> LoadTest:
    """A test whose points show exactly what the scales say."""
    blank = LoadTest(served=SERVED, machine=MACHINE, points=_points(shapes))
    points = tuple(
        LoadPoint(
            loop=point.loop, requests=point.requests, ttft_s=times.ttft_s, tpot_s=times.tpot_s
        )
        for point, times in zip(blank.points, play(blank, scales, blank.points), strict=True)
    )
    return LoadTest(served=SERVED, machine=MACHINE, points=points)


def _planted(**changes: float) -> Scales:
    assumed = assumed_scales(SERVED, MACHINE)
    logs = dict(zip(Scales.__slots__, assumed.logs(), strict=True))
    return from_logs(np.array([logs[name] + changes.get(name, 0.0) for name in logs]))


def _errors(fit: LoadFit, truth: Scales) -> tuple[float, float]:
    test = _measured(truth, FURTHER)
    expected = fit.expect(0, test, test.points)
    pairs = zip(test.points, expected, strict=True)
    found = np.array(
        [
            (one.times.tpot_s / point.tpot_s - 1, one.times.ttft_s / point.ttft_s - 1)
            for point, one in pairs
        ]
    )
    return float(np.abs(found[:, 0]).mean()), float(np.abs(found[:, 1]).mean())


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": 0.2, "overhead_s": 0.5},
        {"compute": 0.3, "delay_s": 0.6},
        {"compute": -0.2, "launch_s": 1.0, "memory": -0.1},
    ],
)
def test_further_points_follow_the_planted_scales(changes: dict[str, float]) -> None:
    """Four points of an engine off its assumed scales predict others; uncalibrated ones do not."""
    truth = _planted(**changes)
    fit = fit_load_tests([_measured(truth, SHAPES)])
    tpot, ttft = _errors(fit, truth)
    assert tpot < 0.03
    assert ttft < 0.10
    bare = _measured(truth, FURTHER)
    assumed = play(bare, assumed_scales(SERVED, MACHINE), bare.points)
    off = [abs(one.tpot_s / p.tpot_s - 1) for one, p in zip(assumed, bare.points, strict=True)]
    assert np.mean(off) > 2 * tpot


def test_an_engine_as_assumed_stays_as_assumed() -> None:
    """Without news from the points every scale stays at its prior."""
    truth = assumed_scales(SERVED, MACHINE)
    fit = fit_load_tests([_measured(truth, SHAPES)])
    assert fit.scales[0].logs() == pytest.approx(truth.logs(), abs=0.02)
    assert fit.misfit < 0.1
    assert np.abs(fit.left_out).max() < 0.02


def test_what_one_point_alone_tells_is_least_sure_without_it() -> None:
    """The only point of few requests tells the fixed costs: nothing else does without it."""
    fit = fit_load_tests([_measured(_planted(compute=0.2), SHAPES)])
    assert fit.left_out_spreads[0, 0] == fit.left_out_spreads[:, 0].max()
    assert fit.left_out_spreads.min() >= 1


def test_siblings_share_what_they_have_in_common() -> None:
    """A second series of the same kind narrows what is expected of the first."""
    truth = _planted(memory=0.1, overhead_s=0.3)
    test = _measured(truth, SHAPES)
    alone, together = fit_load_tests([test]), fit_load_tests([test, test])
    further = _measured(truth, FURTHER)
    spreads = [fit.expect(0, further, further.points)[2].tpot_spread for fit in (alone, together)]
    assert spreads[1] < spreads[0]


def test_steps_beyond_the_graphs_take_their_launches() -> None:
    """The tables jump by the launches between 512 and 513 positions."""
    scales = _planted()
    test = LoadTest(served=SERVED, machine=MACHINE, points=_points(SHAPES))
    tables = scaled_tables(SERVED, MACHINE, scales, test.limits)
    edge = int(np.searchsorted(tables.tokens, GRAPH_TOKENS))
    jump = tables.dense_s[edge + 1] - tables.dense_s[edge]
    assert jump == pytest.approx(scales.launch_s, rel=0.02)
