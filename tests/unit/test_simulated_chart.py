"""The picture of a simulated load."""

import numpy as np

from advisor.roofline.step.steptime import AffineStep, TableLimits
from advisor.simulator import Load, SchedulerSettings
from advisor.simulator.predicted import Run, run
from api.charts.simulated import page, simulated_figure

SETTINGS = SchedulerSettings(
    num_blocks=400, max_num_seqs=8, max_num_batched_tokens=256, max_model_len=512
)
LOAD = Load(
    arrival_s=np.arange(20.0),
    prompt_tokens=np.full(20, 40, np.int64),
    output_tokens=np.full(20, 5, np.int64),
)


def ran(step_s: float) -> Run:
    """Twenty requests on an engine whose steps take so long."""
    limits = TableLimits(max_tokens=256, max_requests=8, max_context=512)
    return run(LOAD, SETTINGS, AffineStep(fixed_s=step_s, token_s=1e-4).tables(limits), seed=0)


def test_the_axes_of_a_plot_hold_the_curves_of_all_ends() -> None:
    """The slow end does not push the fast one out of the picture."""
    ends = {"fast": ran(0.01), "centre": ran(0.05), "slow": ran(0.2)}
    figure = simulated_figure(ends)

    for name in ("x3", "x4"):
        low, high = (10**end for end in figure.layout[f"xaxis{name[1:]}"].range)
        curves = [trace for trace in figure.data if trace.xaxis == name]
        assert [trace.name for trace in curves] == list(ends)
        assert all(low <= min(trace.x) <= max(trace.x) <= high for trace in curves)


def test_the_page_needs_no_network_and_escapes_what_it_says() -> None:
    """Scripts are inside; a file name with a tag in it stays text."""
    found = page(simulated_figure({"centre": ran(0.05)}), "<b>file</b>", ["5 < 6"])

    assert "<b>file</b>" not in found
    assert "5 &lt; 6" in found
    assert 'src="http' not in found
