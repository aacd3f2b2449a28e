"""Output tokens per second of a load, over its span and while it was full."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from advisor.estimate import Estimate, Source
from advisor.measurement.protocol.flow import frame_weights
from advisor.measurement.records import RequestRecord

BLOCKS = 10


def throughput(good: Sequence[RequestRecord], span_s: float) -> Estimate:
    """Output tokens of successes over the span, with a t interval over equal time blocks."""
    tokens = sum(record.output_tokens or 0 for record in good)
    value = tokens / span_s
    if not tokens:
        return Estimate(
            value=0.0, low=0.0, high=0.0, source=Source.MEASURED, basis="no output token was seen"
        )
    rates = _tokens_per_block(good, span_s) / (span_s / BLOCKS)
    deviation = float(rates.std(ddof=1)) / math.sqrt(BLOCKS)
    half = float(stdtrit(BLOCKS - 1, 0.975)) * deviation
    return Estimate(
        value=value,
        low=max(0.0, value - half),
        high=value + half,
        source=Source.MEASURED,
        basis=f"within this point: t interval over {BLOCKS} equal time blocks",
    )


def loaded_rate(good: Sequence[RequestRecord], concurrency: int) -> float | None:
    """Tokens per second while every slot was taken: until the last request was sent."""
    sent = sorted(record.sent_s for record in good)
    if len(sent) < 2 * concurrency:
        return None
    since_s, until_s = sent[concurrency - 1], sent[-1]
    if until_s <= since_s:
        return None
    tokens = 0.0
    for record in good:
        times = _token_times(record)
        weights = np.asarray(frame_weights(record, len(times)))
        tokens += float(weights[(times > since_s) & (times <= until_s)].sum())
    return tokens / (until_s - since_s)


def _token_times(record: RequestRecord) -> NDArray[np.float64]:
    """When frames with tokens arrived; the end of the answer where none was recorded."""
    return np.asarray(record.frame_times_s or (record.last_token_s or record.end_s,))


def _tokens_per_block(good: Sequence[RequestRecord], span_s: float) -> NDArray[np.float64]:
    """Output tokens in each block."""
    start_s = min(record.sent_s for record in good)
    counts = np.zeros(BLOCKS)
    for record in good:
        times = _token_times(record)
        blocks = ((times - start_s) / span_s * BLOCKS).astype(int)
        np.add.at(counts, np.clip(blocks, 0, BLOCKS - 1), frame_weights(record, len(times)))
    return counts
