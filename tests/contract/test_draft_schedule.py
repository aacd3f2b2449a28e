"""Schedules of draft lengths as the installed vLLM expands them."""

import json
import subprocess

import pytest

from advisor.roofline.speculation import DraftSchedule, draft_schedule
from tests.unit.roofline.speculation.test_schedule import DENSE

pytestmark = pytest.mark.engine
SEATS = 300
EXPAND = """
import json, sys
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
print(json.dumps([
    build_dynamic_sd_schedule_lookup(item["ranges"], item["seats"], item["most"])
    for item in json.load(sys.stdin)
]))
"""


def test_vllm_looks_up_the_same_lengths(engine_python: str) -> None:
    """Its own table of batches equals ours, gaps and tail included."""
    schedules = (
        draft_schedule(DENSE, 100, max_num_seqs=SEATS),
        DraftSchedule(ranges=((1, 16, 5), (17, 64, 3), (65, 256, 0))),
        DraftSchedule(ranges=((32, 128, 2), (1, 16, 3))),
    )
    asked = [
        {
            "ranges": [list(part) for part in item.ranges],
            "seats": SEATS,
            "most": item.num_speculative_tokens,
        }
        for item in schedules
    ]
    done = subprocess.run(
        [engine_python, "-c", EXPAND],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    tables = json.loads(done.stdout.splitlines()[-1])
    for item, table in zip(schedules, tables, strict=True):
        assert table[1:] == [item.draft_tokens(batch) for batch in range(1, SEATS + 1)]
