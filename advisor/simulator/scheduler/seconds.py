"""Seconds of one step of the simulator from `Curves`, in compiled code."""

from advisor.roofline.step.compiled import inner
from advisor.roofline.step.curves import Curves, across, along
from advisor.roofline.step.joint import effective_contexts, joint_seconds
from advisor.simulator.scheduler.fields import (
    CHUNK_TOKENS,
    CHUNKS_S,
    CONTEXT,
    DECODES,
    DRAFTING,
    LONGEST,
    PAIRS,
    POSITIONS,
    ROWS,
    Floats,
)


@inner
def _attention(curves: Curves, clock: Floats) -> float:
    """All attention of the step, chunks and decodes together or added."""
    decodes, context = clock[DECODES], clock[CONTEXT]
    if curves.host[3] > 0.0:
        tail = (curves.host[4], curves.host[5], curves.host[6])
        context = effective_contexts(clock[CHUNK_TOKENS], (decodes, context, clock[LONGEST]), tail)
        grids = (
            curves.joint_new,
            curves.joint_cached,
            curves.joint_requests,
            curves.joint_contexts,
        )
        work = (clock[CHUNK_TOKENS], clock[PAIRS], decodes, context)
        return joint_seconds(grids, curves.joint_s, work)
    if decodes <= 0.0:
        return float(clock[CHUNKS_S])
    alone = across(curves.requests, curves.contexts, curves.decode_s, (decodes, context / decodes))
    return float(clock[CHUNKS_S] + alone)


@inner
def step_seconds(curves: Curves, clock: Floats, requests: int) -> float:
    """Seconds of the step whose sums stand in the clock; 0 for one without positions."""
    if clock[POSITIONS] <= 0.0:
        return 0.0
    device = along(curves.tokens, curves.dense_s, clock[POSITIONS])
    device += along(curves.rows, curves.head_s, clock[ROWS]) + _attention(curves, clock)
    if clock[DRAFTING] > 0.0:
        device += along(curves.requests, curves.draft_s, clock[DRAFTING])
    host = curves.host[0] + curves.host[1] * requests
    return float(max(device, host) if curves.host[2] > 0.0 else device + host)
