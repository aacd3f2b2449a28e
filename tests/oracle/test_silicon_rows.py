"""Which silicon rows are admitted, and that the split into calibration and test is blind."""

from dataclasses import replace
from pathlib import Path

from tests.validate.silicon.models import MODELS
from tests.validate.silicon.rows import CALIBRATION_POINTS, FILE, Row, read_series, split


def _row(prompt: int, output: int, concurrency: int, time_s: float = 1.0) -> Row:
    return Row(
        prompt_tokens=prompt,
        output_tokens=output,
        concurrency=concurrency,
        ttft_s=time_s,
        tpot_s=time_s,
        identity="",
    )


ROWS = tuple(
    _row(prompt, output, concurrency)
    for prompt, output in ((1024, 1024), (1024, 8192), (8192, 1024))
    for concurrency in (4, 8, 16, 32, 64)
)


def test_the_four_points_are_the_corners_of_the_inputs() -> None:
    """The smallest, then the farthest: the least load and every shape at the highest one."""
    chosen, held = split(ROWS)
    assert [
        (ROWS[i].prompt_tokens, ROWS[i].output_tokens, ROWS[i].concurrency) for i in chosen
    ] == [(1024, 1024, 4), (8192, 1024, 64), (1024, 8192, 64), (1024, 1024, 64)]
    assert sorted((*chosen, *held)) == list(range(len(ROWS)))


def test_the_split_reads_no_measured_time() -> None:
    """Other times, the same four points."""
    other = tuple(
        replace(row, ttft_s=1 + index, tpot_s=1 / (1 + index)) for index, row in enumerate(ROWS)
    )
    assert split(other) == split(ROWS)


def test_eighteen_dense_series_of_six_rows_are_admitted(shared: Path) -> None:
    """Llama-3.1-70B on three cards and Qwen3-32B on H100, each by precision and ranks."""
    series = read_series(shared / "data" / "measurements" / FILE)
    dense = [one for one in series if MODELS[one.model].is_dense]
    assert len(dense) == 18
    assert all(len(series[one]) >= 6 for one in series)
    assert all(len(split(series[one])[0]) == CALIBRATION_POINTS for one in series)
    assert not [one for one in series if "8B" in one.model]
