"""What is said of a load test before anything was measured."""

from advisor.estimate import Source
from advisor.roofline.closed_loop.forecast import forecast
from advisor.roofline.closed_loop.loop import ClosedLoop
from tests.unit.roofline.closed_loop.test_fit import MACHINE, SERVED


def _loop(concurrency: int, prompt: int = 1024) -> ClosedLoop:
    return ClosedLoop(
        concurrency=concurrency,
        prompt_tokens=prompt,
        output_tokens=256,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
        shortest=0.8,
    )


def test_a_forecast_carries_interval_source_and_what_it_leaves_out() -> None:
    """90 %, from the roofline, and never a bare number."""
    said = forecast(SERVED, MACHINE, _loop(16), requests=160)
    for one in (said.ttft_s, said.tpot_s):
        assert one.low < one.value < one.high
        assert one.source is Source.ROOFLINE
        assert "90 %" in one.basis
        assert one.not_modelled
    assert said.times.tpot_s == said.tpot_s.value


def test_ttft_is_less_sure_than_tpot() -> None:
    """Delays of client and engine are known within a factor of two only."""
    said = forecast(SERVED, MACHINE, _loop(4), requests=40)
    assert said.ttft_s.high / said.ttft_s.low > said.tpot_s.high / said.tpot_s.low


def test_longer_prompts_of_others_lengthen_every_token() -> None:
    """TPOT holds the prompts that arrive while a request decodes."""
    short = forecast(SERVED, MACHINE, _loop(32, prompt=256), requests=320)
    long = forecast(SERVED, MACHINE, _loop(32, prompt=4096), requests=320)
    assert long.tpot_s.value > 1.5 * short.tpot_s.value
