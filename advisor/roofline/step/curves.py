"""`StepTables` as plain arrays and their interpolation, in compiled code."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.roofline.step.compiled import inner, kept
from advisor.roofline.step.steptime import JointAttention, StepTables

Floats: TypeAlias = NDArray[np.float64]


class Curves(NamedTuple):
    """`StepTables` as plain arrays.

    `host` is (fixed, per request, 1 where it overlaps, 1 where attention is joint, and the three
    numbers of `JointAttention`'s tail).
    """

    tokens: Floats
    dense_s: Floats
    rows: Floats
    head_s: Floats
    requests: Floats
    contexts: Floats
    decode_s: Floats
    new: Floats
    cached: Floats
    prefill_s: Floats
    draft_s: Floats
    host: Floats
    joint_new: Floats
    joint_cached: Floats
    joint_requests: Floats
    joint_contexts: Floats
    joint_s: Floats


_POINT = np.zeros(1)
_NO_JOINT = JointAttention(
    new=_POINT, cached=_POINT, requests=_POINT, contexts=_POINT, seconds=np.zeros((1, 1, 1, 1))
)


def curves(tables: StepTables) -> Curves:
    """The arrays of a table as compiled code wants them."""

    def plain(values: Floats) -> Floats:
        return np.ascontiguousarray(values, dtype=np.float64)

    joint = tables.joint or _NO_JOINT
    host = [
        tables.host_s,
        tables.host_request_s,
        float(tables.async_scheduling),
        float(tables.joint is not None),
        joint.tail_alone,
        joint.tail_beside,
        joint.tail_from,
    ]
    return Curves(
        tokens=plain(tables.tokens),
        dense_s=plain(tables.dense_s),
        rows=plain(tables.rows),
        head_s=plain(tables.head_s),
        requests=plain(tables.requests),
        contexts=plain(tables.contexts),
        decode_s=plain(tables.decode_s),
        new=plain(tables.new),
        cached=plain(tables.cached),
        prefill_s=plain(tables.prefill_s),
        draft_s=plain(tables.draft_s),
        host=np.array(host, dtype=np.float64),
        joint_new=plain(joint.new),
        joint_cached=plain(joint.cached),
        joint_requests=plain(joint.requests),
        joint_contexts=plain(joint.contexts),
        joint_s=plain(joint.seconds),
    )


@inner
def segment(grid: Floats, value: float) -> int:
    """Which stretch of a rising grid holds a value; the first or last one beyond its ends."""
    low, high = 0, len(grid) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if grid[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@inner
def along(grid: Floats, values: Floats, value: float) -> float:
    """Linear between the points of a grid and beyond its ends, never below 0."""
    if len(grid) == 1:
        return float(values[0])
    at = segment(grid, value)
    share = (value - grid[at]) / (grid[at + 1] - grid[at])
    return float(max(0.0, values[at] + share * (values[at + 1] - values[at])))


@inner
def across(rows: Floats, columns: Floats, values: Floats, at: tuple[float, float]) -> float:
    """Bilinear on a grid of rows and columns, never below 0."""
    if len(rows) == 1:
        return along(columns, values[0], at[1])
    low = segment(rows, at[0])
    share = (at[0] - rows[low]) / (rows[low + 1] - rows[low])
    if len(columns) == 1:
        below, above = values[low, 0], values[low + 1, 0]
    else:
        left = segment(columns, at[1])
        part = (at[1] - columns[left]) / (columns[left + 1] - columns[left])
        below = values[low, left] + part * (values[low, left + 1] - values[low, left])
        above = values[low + 1, left] + part * (values[low + 1, left + 1] - values[low + 1, left])
    return float(max(0.0, below + share * (above - below)))


@inner
def chunk_seconds(curves: Curves, new: float, cached: float) -> float:
    """Attention of one chunk of a prompt."""
    return across(curves.new, curves.cached, curves.prefill_s, (new, cached))


@kept
def along_each(grid: Floats, values: Floats, at: Floats) -> Floats:
    """`along` at each of many places, for callers that are not compiled."""
    found = np.empty(len(at))
    for place in range(len(at)):
        found[place] = along(grid, values, at[place])
    return found


@kept
def across_each(grids: tuple[Floats, Floats], values: Floats, at: tuple[Floats, Floats]) -> Floats:
    """`across` at each pair of places, for callers that are not compiled."""
    found = np.empty(len(at[0]))
    for place in range(len(at[0])):
        found[place] = across(grids[0], grids[1], values, (at[0][place], at[1][place]))
    return found
