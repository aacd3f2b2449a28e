"""What the child process does to derive a workload: stored requests in, a new upload out.

The new traffic is written as our own JSON Lines into the spool folder and read like any upload, so
that its figures come about in one way only.
"""

import tempfile
from typing import BinaryIO, cast

from advisor.canonical import Json
from advisor.errors import InvalidInput
from advisor.traffic.sampling.shelf import Shelf, Source, derivation
from advisor.traffic.trace import TraceReport
from api.codec import read
from api.frames import Frames, Place
from api.order import ORDER, PART, SOURCE, Order
from api.reading import Emit, Facts, Job, read_upload

FORMAT = "derived"


def derive(stream: BinaryIO, job: Job, secret: bytes, emit: Emit) -> Facts:
    """The facts of the derived traffic, as of an upload; its requests are emitted."""
    given = Frames(stream)
    order = Order.read(next(given.of(ORDER)))
    most = job.options.max_rows
    # Said before a plan of so many rows is made: that alone takes a minute.
    if most is not None and (order.recipe.requests or 0) > most:
        return {"refused": {"error": "TooLarge", "rows": order.recipe.requests}}
    with tempfile.TemporaryFile(dir=job.spool) as file:
        sources = _sources(given, order.names)
        made = derivation(sources, order.recipe, by_time=order.by_time)
        if most is not None and len(made.plan) > most:
            return {"refused": {"error": "TooLarge", "rows": len(made.plan)}}
        for line in made.lines:
            file.write(line.encode() + b"\n")
        size = file.tell()
        file.seek(0)
        facts = read_upload(file, job, secret, emit)
    if "report" in facts:
        report = cast("dict[str, Json]", facts["report"])
        report["format"] = FORMAT
        report["title"] = order.recipe.described(order.names)
        report["warnings"] = [*made.plan.warnings(), *cast("list[Json]", report["warnings"])]
        facts["bytes"] = size
    return facts


def _sources(given: Frames, names: tuple[str, ...]) -> list[Source]:
    reports: list[bytes] = []
    parts: list[list[Place]] = []
    for place in given.places:
        if place.tag == SOURCE:
            reports.append(given.body(place))
            parts.append([])
        elif place.tag == PART:
            parts[-1].append(place)
    if len(reports) != len(names):
        raise InvalidInput("workload_ids", "not as many sources as names")
    return [
        Source(name=name, report=read(report, TraceReport), shelf=_shelf(given, places))
        for name, report, places in zip(names, reports, parts, strict=True)
    ]


def _shelf(given: Frames, places: list[Place]) -> Shelf:
    return Shelf(len(places), lambda number: given.body(places[number]))
