"""What makes a load point unusable, one phrase each, and what a reader must know all the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.measurement.counts import count_sources, output_lengths
from advisor.measurement.protocol.reached import (
    intended_rate_per_s,
    load_reached,
    rate_reached,
    sent_rate_per_s,
)
from advisor.measurement.protocol.steady import why_unsteady
from advisor.measurement.records import (
    ClientHealth,
    EngineCounters,
    HostLoad,
    Outcome,
    RequestRecord,
    Window,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One load as its flaws are found.

    `concurrency` is None for an open loop and for gangs, `loaded` the mean number in flight where
    a closed loop was to keep `concurrency`. `judged` says whether the load can be called unsteady
    at all: gangs cannot. On a `shared_machine` what others do is expected: it is no flaw, nor is
    what it does to the client.
    """

    records: Sequence[RequestRecord]
    window: Window
    host: HostLoad
    client: ClientHealth | None
    concurrency: int | None
    loaded: float | None
    opened: bool
    judged: bool
    shared_machine: bool = False

    @property
    def slow_client(self) -> str | None:
        """Why the figures may be the client's own; None where they are not."""
        if self.client is None or not self.client.limited:
            return None
        return f"client-limited: {self.client.reason}"


def flaws(seen: Seen) -> tuple[str, ...]:
    """Why the point may not be used; empty where it may.

    Failures (case S-07), successes without a token count, a load or a rate that was not reached
    (S-24, S-06), a client that was too slow, a load that was not steady, neighbours. Gangs wait for
    their longest answer, so that they are meant to keep fewer in flight.
    """
    return tuple(_flaws(seen))


def remarks(
    seen: Seen, counters: EngineCounters, not_fitting: int, retries: int
) -> tuple[str, ...]:
    """What a reader must know of a point that is usable all the same."""
    said = []
    if seen.shared_machine and seen.slow_client is not None:
        said.append(seen.slow_client)
    if counters.preemptions:
        said.append(
            f"{counters.preemptions} preemptions: no prefix hits credited, they may be recompute"
        )
    if not_fitting:
        said.append(f"{not_fitting} requests do not fit max_model_len and were not sent")
    counted = count_sources(seen.records)
    if counted.token_ids:
        said.append(
            f"{counted.token_ids} answers came without usage and were counted by their token ids"
        )
    lengths = output_lengths(seen.records)
    if lengths.limit_ignored:
        said.append(
            f"{lengths.longer} of {lengths.requests} answers are longer than their requests allow"
        )
    if retries:
        said.append(f"{retries} retries: latencies count from the first attempt")
    return tuple(said)


def _flaws(seen: Seen) -> Iterator[str]:
    good = [record for record in seen.records if record.outcome is Outcome.OK]
    failed = len(seen.records) - len(good)
    if failed:
        yield f"{failed} of {len(seen.records)} requests failed"
    uncounted = sum(record.output_tokens is None for record in good)
    if uncounted:
        yield f"{uncounted} of {len(good)} successes without a token count"
    yield from _not_reached(seen)
    if seen.slow_client is not None and not seen.shared_machine:
        yield seen.slow_client
    unsteady = (
        why_unsteady(seen.records, seen.window, concurrency=seen.concurrency)
        if seen.judged
        else None
    )
    if unsteady is not None:
        yield unsteady
    if seen.host.disturbed and not seen.shared_machine:
        yield "disturbed by neighbours"


def _not_reached(seen: Seen) -> Iterator[str]:
    if seen.opened and not rate_reached(seen.records):
        sent, wanted = sent_rate_per_s(seen.records), intended_rate_per_s(seen.records)
        yield f"target rate not reached: {sent:.1f} of {wanted:.1f} requests/s"
    if seen.concurrency is None or seen.loaded is None:
        return
    if not load_reached(seen.loaded, seen.concurrency):
        yield f"load not reached: {seen.loaded:.1f} of {seen.concurrency} requests in flight"
