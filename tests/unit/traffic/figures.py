"""Columns of requests for the tests of statistics."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from advisor.traffic.facts import REPORTED, Facts, facts_of
from tests.unit.traffic.rows import lengths


def columns_of(prompts: ArrayLike, outputs: ArrayLike, **more: object) -> Facts:
    """Requests with these lengths (-1: not known), one a second; `more` replaces columns."""
    held = np.asarray(prompts, dtype=np.int64)
    said = np.asarray(outputs, dtype=np.int64)
    empty = facts_of([lengths(0, None, None)], None).take(np.zeros(len(held), dtype=np.int64))
    return replace(
        empty,
        arrival_s=np.arange(len(held), dtype=np.float64),
        prompt_tokens=held,
        output_tokens=said,
        prompt_source=np.where(held >= 0, REPORTED, 0).astype(np.int8),
        output_source=np.where(said >= 0, REPORTED, 0).astype(np.int8),
        **more,  # type: ignore[arg-type]
    )
