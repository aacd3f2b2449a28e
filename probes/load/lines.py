"""What passes between the load client's process and its parent, one JSON document a line.

Down: the plan, then the moment of the start on the monotonic clock. Up: a line when the plan is
read, one per finished request, and one on the process's own health.
"""

import dataclasses
import json
from collections.abc import Mapping

import orjson

from advisor.canonical import Json
from advisor.measurement.records import Outcome, RequestRecord
from probes.load.health import ProcessHealth
from probes.load.plan import EarlierAnswer, LoadPlan, PlannedRequest
from probes.load.schedule import Schedule

READY = b'{"ready":true}'


def json_bytes(document: Mapping[str, Json]) -> bytes:
    """Compact JSON; the slow way for integers beyond 64 bits and for half surrogate pairs."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document).encode()


def plan_to_json(plan: LoadPlan) -> bytes:
    """One line, without its end."""
    document = {
        field.name: getattr(plan, field.name)
        for field in dataclasses.fields(plan)
        if field.name not in {"schedule", "requests"}
    }
    document["schedule"] = dataclasses.asdict(plan.schedule)
    document["requests"] = [
        {
            **{
                field.name: getattr(request, field.name)
                for field in dataclasses.fields(request)
                if field.name != "history"
            },
            "history": [[answer.message, answer.turn] for answer in request.history],
        }
        for request in plan.requests
    ]
    return json_bytes(document)


def read_plan(line: bytes) -> LoadPlan:
    """The inverse of `plan_to_json`."""
    document = json.loads(line)
    requests = [
        PlannedRequest(
            **{
                **row,
                "history": tuple(
                    EarlierAnswer(message=message, turn=turn) for message, turn in row["history"]
                ),
            }
        )
        for row in document.pop("requests")
    ]
    schedule = document.pop("schedule")
    offsets = schedule.pop("offsets_s")
    return LoadPlan(
        **document,
        schedule=Schedule(**schedule, offsets_s=None if offsets is None else tuple(offsets)),
        requests=tuple(requests),
    )


def record_to_line(record: RequestRecord) -> bytes:
    """One record as one line of JSON."""
    return orjson.dumps(record)


def record_from_line(line: bytes) -> RequestRecord:
    """The inverse of `record_to_line`."""
    return read_record(orjson.loads(line))


def health_to_line(health: ProcessHealth) -> bytes:
    """The last line of a client process."""
    return orjson.dumps({"health": health})


def read_line(line: bytes) -> RequestRecord | ProcessHealth:
    """What a client process says after `READY`."""
    document = orjson.loads(line)
    if "health" in document:
        values = document["health"]
        return ProcessHealth(**{**values, "send_delays_s": tuple(values["send_delays_s"])})
    return read_record(document)


def read_record(row: Mapping[str, object]) -> RequestRecord:
    """A record from its fields as plain values; fields that an older one lacks are unknown."""
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    values["outcome"] = Outcome(str(values["outcome"]))
    return RequestRecord(**values)  # type: ignore[arg-type]
