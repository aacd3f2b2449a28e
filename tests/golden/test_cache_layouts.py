"""Cache layouts against those of the installed vLLM, recorded from its own functions."""

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.roofline.memory import cache_layout, capacity_of
from tests.golden.layouts.cases import AVAILABLE_BYTES, CASES

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "layouts" / "layouts.json").read_text()
)["layouts"]


def test_every_case_is_recorded() -> None:
    """A case without a record would be tested against nothing."""
    assert set(RECORDED) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_layout_equals_that_of_the_engine(name: str) -> None:
    """Groups, block sizes, bytes, blocks, concurrency and tokens, to the last digit."""
    model, settings = CASES[name]
    layout = cache_layout(model, settings)
    pool = capacity_of(layout, AVAILABLE_BYTES)
    length = settings.max_model_len
    assert {
        "groups": [[group.layers, group.block_size] for group in layout.groups],
        "bytes_per_block": layout.bytes_per_block,
        "num_blocks": pool.num_blocks,
        "request_bytes": layout.request_bytes(length),
        "max_concurrency": pool.max_concurrency(length),
        "kv_cache_size_tokens": pool.reported_tokens,
    } == RECORDED[name]
