"""What a load sends: which requests, at which times, and how a prefix cache is kept from them."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.canonical import Json
from advisor.errors import InvalidInput
from advisor.measurement.arrivals import arrival_offsets
from advisor.measurement.asked import MeasurePlan, Salt, Stop
from advisor.measurement.records import LoopKind, OpenLoop
from advisor.measurement.report import Rank
from advisor.measurement.rounds import PlannedLoad
from probes.load.plan import LoadPlan, PlannedRequest, ReplayRule, planned_requests
from probes.load.schedule import Schedule
from probes.measure.server import Server
from probes.measure.workload import Deal, Workload

# Fields that only vLLM is known to take; another server may refuse a request that holds them.
_VLLM_ONLY = frozenset({"return_token_ids", "ignore_eos", "min_tokens", "cache_salt"})
_SALT_BYTES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One load to be made, with its requests.

    `digest` names them and their limits. `not_fitting` requests of the workload were left out.
    """

    planned: PlannedLoad
    deal: Deal
    digest: str
    not_fitting: int

    @property
    def workload(self) -> Workload:
        """Its requests."""
        return self.deal.workload


def rule_of(plan: MeasurePlan, server: Server, workload: Workload) -> ReplayRule:
    """How long answers may be. Only vLLM is known to honour a recorded length."""
    return ReplayRule(
        cap_tokens=plan.cap_tokens,
        default_tokens=plan.default_tokens,
        fixed=plan.stop is Stop.RECORDED and server.identity.is_vllm,
        vocab_size=workload.vocab_size,
        seed=plan.seed,
    )


def open_loop_of(plan: MeasurePlan, shot: Shot) -> OpenLoop | None:
    """What the load asks of an open loop; None for a closed one."""
    if plan.kind is LoopKind.CLOSED:
        return None
    recorded = plan.arrivals == "recorded"
    return OpenLoop(
        arrivals=plan.arrivals,
        rate_per_s=shot.planned.level,
        cv=plan.cv,
        speed=shot.planned.level / recorded_rate_per_s(shot.workload) if recorded else None,
    )


def recorded_rate_per_s(workload: Workload) -> float:
    """The mean rate of the recorded arrivals; `InvalidInput` where there is none."""
    times = workload.arrivals_s
    if times is None or max(times) <= min(times):
        raise InvalidInput("--arrivals", "the file does not say when its requests arrived")
    return (len(times) - 1) / (max(times) - min(times))


def load_plan_of(server: Server, plan: MeasurePlan, shot: Shot, loop: OpenLoop | None) -> LoadPlan:
    address = server.address
    return LoadPlan(
        host=address.host,
        port=address.port,
        base_path=address.base_path,
        tls=address.tls,
        api_key=address.api_key,
        schedule=_schedule(plan, shot, loop),
        requests=_requests(server, plan, shot),
    )


def _schedule(plan: MeasurePlan, shot: Shot, loop: OpenLoop | None) -> Schedule:
    if loop is None:
        return Schedule(concurrency=int(shot.planned.level))
    offsets_s = arrival_offsets(
        loop,
        len(shot.workload.requests),
        # The same gaps for all levels of a round: levels differ by their rate alone.
        seed=plan.seed + shot.planned.repeat,
        recorded_s=shot.workload.arrivals_s,
    )
    return Schedule(concurrency=None, offsets_s=offsets_s)


def _requests(server: Server, plan: MeasurePlan, shot: Shot) -> tuple[PlannedRequest, ...]:
    workload = shot.workload
    salt = server.salt(plan.salt)
    mark = secrets.token_hex(_SALT_BYTES)
    rule = rule_of(plan, server, workload)
    if server.rank is not Rank.OWN_ENGINE:
        # Made-up prompts of the same lengths, but no others that a cache could know.
        rule = replace(rule, seed=secrets.randbits(32))
    planned = planned_requests(
        workload.requests,
        model=server.identity.model,
        rule=rule,
        output_tokens=workload.output_tokens,
        sessions=workload.conversations,
    )
    is_vllm = server.identity.is_vllm
    return tuple(
        replace(
            request,
            body=_body(
                request.body, _salt_of(salt, lap, is_vllm), f"{mark}{lap or ''}", is_vllm=is_vllm
            ),
        )
        for request, lap in zip(planned, shot.deal.laps, strict=True)
    )


def _salt_of(salt: Salt, lap: int, is_vllm: bool) -> Salt:  # noqa: FBT001 - as `_body` has it
    """A request that comes again in a load must not find itself in the cache."""
    return Salt.FIELD if salt is Salt.NONE and lap and is_vllm else salt


def _body(body: Mapping[str, Json], salt: Salt, mark: str, *, is_vllm: bool) -> dict[str, Json]:
    kept = {name: value for name, value in body.items() if is_vllm or name not in _VLLM_ONLY}
    if salt is Salt.FIELD:
        return {**kept, "cache_salt": mark}
    return salted(kept, f"[{mark}] ") if salt is Salt.PROMPT else kept


def salted(body: Mapping[str, Json], word: str) -> dict[str, Json]:
    """The body with a word before its prompt or its first message.

    A prompt of token ids, and a message without text at its start, stay as they are.
    """
    prompt, messages = body.get("prompt"), body.get("messages")
    if isinstance(prompt, str):
        return {**body, "prompt": word + prompt}
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
        return dict(body)
    first = messages[0]
    content = first.get("content")
    if isinstance(content, list):
        part: Json = {"type": "text", "text": word}
        return {**body, "messages": [{**first, "content": [part, *content]}, *messages[1:]]}
    if not isinstance(content, str):
        return dict(body)
    return {**body, "messages": [{**first, "content": word + content}, *messages[1:]]}
