"""The report of a comparison: which sides, which pairs, what they say together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from advisor.canonical import digest
from advisor.errors import InvalidInput
from advisor.measurement.asked import CompareOrder, Endpoint, MeasuredServer, OwnEngine, Salt
from advisor.measurement.comparison import (
    ComparedSide,
    ComparisonReport,
    PairedLoad,
    compared_levels,
)
from advisor.measurement.protocol.pairs import Arm
from advisor.measurement.report import Rank
from probes.measure.pairing import Paired
from probes.measure.reporting import TOOL, plan_values, sourced
from probes.measure.server import Server

_FRESH = "every engine was started anew for each of its loads, so that starts are in the intervals"
_RUNNING = "both servers were taken as they run: how restarts differ is not in the intervals"
_ORDER = "the sides took turns, A B B A, and both loads of a pair sent the same requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is known of both sides before the first load.

    `repeats`: all pairs may send the same requests, as no load finds another's in a prefix cache.
    `caching_differs`: prefix hits may differ between the sides by right.
    """

    a: ComparedSide
    b: ComparedSide
    rank: Rank
    repeats: bool
    caching_differs: bool
    max_model_len: int | None
    plan_digest: str


def compared_sides(
    order: CompareOrder, attached: Mapping[Arm, Server], workload_digest: str
) -> Sides:
    """Both sides as the order and the attached servers tell them.

    Raises `InvalidInput` where both are one server whose cache cannot be kept apart.
    """
    sides = {Arm.A: order.a, Arm.B: order.b}
    found = {arm: _side(sides[arm], attached.get(arm)) for arm in Arm}
    salted = all(server.salt(order.plan.salt) is not Salt.NONE for server in attached.values())
    if attached and not salted and attached[Arm.A].address == attached[Arm.B].address:
        raise InvalidInput(
            "URL B", "is the server of A, whose prefix cache would know B's requests: give --salt"
        )
    return Sides(
        a=found[Arm.A],
        b=found[Arm.B],
        rank=Rank.CLIENT_SIDE if attached else Rank.OWN_ENGINE,
        repeats=salted,
        caching_differs=(bool(attached) and salted) or _caching(order.a) != _caching(order.b),
        max_model_len=_shortest(order, attached),
        plan_digest=digest(
            {
                "plan": plan_values(order.plan),
                "workload": workload_digest,
                "sides": [[found[arm].title, found[arm].model, found[arm].engine] for arm in Arm],
            }
        ),
    )


def continued_pairs(report: ComparisonReport | None, wanted: str) -> tuple[PairedLoad, ...]:
    """The pairs of an earlier run; one of something else raises `InvalidInput`."""
    if report is None:
        return ()
    if report.plan_digest != wanted:
        raise InvalidInput(
            "--out", "the file holds another comparison: name another file, or remove it"
        )
    return report.loads


def report_maker(
    order: CompareOrder, sides: Sides, *, started: datetime
) -> Callable[[Paired], ComparisonReport]:
    """Makes the report of what there is; numbers carry the source of the sides' rank."""
    own = sides.rank is Rank.OWN_ENGINE

    def made(paired: Paired) -> ComparisonReport:
        loads = tuple(replace(load, point=sourced(load.point, sides.rank)) for load in paired.loads)
        return ComparisonReport(
            rank=sides.rank,
            tool_version=version(TOOL),
            a=sides.a,
            b=sides.b,
            started_epoch_s=started.timestamp(),
            loads=loads,
            levels=compared_levels(
                loads, source=sides.rank.source, caching_differs=sides.caching_differs
            ),
            remarks=(_ORDER, _FRESH if own else _RUNNING, *paired.remarks),
            plan_digest=sides.plan_digest,
            complete=paired.complete and len({load.pair for load in paired.loads}) >= order.pairs,
        )

    return made


def _side(asked: MeasuredServer, server: Server | None) -> ComparedSide:
    match asked:
        case Endpoint():
            if server is None:
                raise InvalidInput("URL", "is not attached")
            identity = server.identity
            return ComparedSide(
                title=server.address.shown, model=identity.model, engine=identity.title
            )
        case OwnEngine(config=config, model_folder=folder, python=python):
            return ComparedSide(
                title=f"settings {config.hash[:12]}",
                model=Path(folder).name,
                engine=f"vllm of {Path(python).parent.parent.name}",
            )


def _caching(asked: MeasuredServer) -> bool | None:
    return asked.config.levers.enable_prefix_caching if isinstance(asked, OwnEngine) else None


def _shortest(order: CompareOrder, attached: Mapping[Arm, Server]) -> int | None:
    stated = [server.identity.max_model_len for server in attached.values()]
    stated += [
        side.config.functional.max_model_len
        for side in (order.a, order.b)
        if isinstance(side, OwnEngine)
    ]
    known = [length for length in stated if length is not None]
    return min(known) if known else None
