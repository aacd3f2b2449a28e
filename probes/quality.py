"""Quality passes: how an engine answers the study's own prompts, as token ids (handbook 7.3).

Each prompt is answered greedily; then the engine is asked for its most likely token at every
position of the reference's answer (teacher forcing). Prompts, answers and ids are never logged.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from threading import Event

import httpx

from advisor.canonical import Json
from advisor.errors import EngineFailed, RooftuneError
from advisor.measurement.records import QualityAnswer, QualityPass
from advisor.recommender.evidence import QualityPlan
from advisor.states import FailureKind
from probes.load.plan import (
    COMPLETION_PATH,
    CONNECT_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    PlannedRequest,
    planned_request,
)
from probes.samples import Sample
from probes.vllm.engine import RunningEngine

IN_FLIGHT = 8
_POLL_S = 0.1
_OK = 200
_SERVER_ERROR = 500
# Only for streams and for loads of equal length; what the user's request says of sampling would
# make the answers random.
_NOT_GREEDY = frozenset({"stream_options", "ignore_eos", "min_tokens", "top_p"})

Document = Mapping[str, object]


class QualityGivenUp(RooftuneError):
    """A pass that could not be made; the message never quotes a prompt or an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityWork:
    """The quality passes of a trial.

    `sample` are the prompts with their limits, `finished` the passes that there are already. With
    `reference` None the trial's own first pass is the reference.
    """

    sample: Sample
    passes: int
    finished: tuple[QualityPass, ...]
    reference: QualityPass | None

    @property
    def missing(self) -> int:
        """Passes still to make."""
        return max(0, self.passes - len(self.finished))

    def forced_to(self) -> dict[str, tuple[int, ...]]:
        """By request the reference's answer; empty while the trial's own first pass is to come."""
        reference = self.reference or next(iter(self.finished), None)
        answers = reference.answers if reference is not None else ()
        return {answer.request_id: answer.greedy for answer in answers}


def quality_sample(probe: Sample, plan: QualityPlan) -> Sample:
    """The first prompts of the probe subset, limited to the plan's length."""
    return probe.first(plan.requests).capped(plan.max_tokens)


def quality_pass(
    engine: RunningEngine,
    work: QualityWork,
    *,
    cancelled: Event,
    on_progress: Callable[[int, int], None],
) -> QualityPass:
    """All prompts answered once, `IN_FLIGHT` at a time; one that the engine refuses is left out.

    `on_progress` gets (done, total). Raises `QualityGivenUp`, or `EngineFailed` with `CANCELLED`
    when `cancelled` was set: the requests in flight are dropped then.
    """
    answers = asyncio.run(_cancellable(_all_answers(engine, work, on_progress), cancelled))
    if not answers:
        raise QualityGivenUp("the engine refused every prompt")
    return QualityPass(subset_digest=work.sample.digest, answers=answers)


async def _cancellable(
    answering: Coroutine[None, None, tuple[QualityAnswer, ...]], cancelled: Event
) -> tuple[QualityAnswer, ...]:
    task = asyncio.ensure_future(answering)
    while not task.done():
        await asyncio.wait({task}, timeout=_POLL_S)
        if cancelled.is_set():
            task.cancel()
            await asyncio.wait({task})
            raise EngineFailed(FailureKind.CANCELLED, "the quality pass was cancelled")
    return task.result()


async def _all_answers(
    engine: RunningEngine, work: QualityWork, on_progress: Callable[[int, int], None]
) -> tuple[QualityAnswer, ...]:
    sample = work.sample
    prompts = [
        planned_request(
            request, model=engine.served_model_name, rule=sample.rule, output_tokens=tokens
        )
        for request, tokens in zip(sample.requests, sample.output_tokens, strict=True)
    ]
    answers: dict[int, QualityAnswer | None] = {}
    waiting = iter(enumerate(prompts))
    forced_to = work.forced_to()

    async def answer_some(asker: _Asker) -> None:
        for place, prompt in waiting:
            answers[place] = await asker.answered(prompt, forced_to)
            on_progress(len(answers), len(prompts))

    timeout = httpx.Timeout(IDLE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    try:
        async with (
            httpx.AsyncClient(base_url=engine.base_url, timeout=timeout, trust_env=False) as client,
            asyncio.TaskGroup() as group,
        ):
            asker = _Asker(client=client, model=engine.served_model_name)
            for _ in range(min(IN_FLIGHT, len(prompts))):
                group.create_task(answer_some(asker))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first of tasks that all do the same
    return tuple(answer for place in sorted(answers) if (answer := answers[place]) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asker:
    """Asks one engine for whole answers. `model` is the name under which it serves."""

    client: httpx.AsyncClient
    model: str

    async def answered(
        self, prompt: PlannedRequest, forced_to: Mapping[str, tuple[int, ...]]
    ) -> QualityAnswer | None:
        """One prompt, greedily and forced; None when the engine refuses it.

        What it is forced to is its own answer where `forced_to` is empty, and nothing for a
        request that the reference does not have.
        """
        body = {name: value for name, value in prompt.body.items() if name not in _NOT_GREEDY}
        body |= {"stream": False, "temperature": 0.0}
        document = await self._asked(prompt.path, body)
        if document is None:
            return None
        choice = _choice(document)
        greedy = _ids(choice.get("token_ids"))
        # A chat's prompt ids stand beside its choices, those of a completion inside.
        prompt_ids = _ids(document.get("prompt_token_ids") or choice.get("prompt_token_ids"))
        wanted = forced_to.get(prompt.request_id) if forced_to else greedy
        return QualityAnswer(
            request_id=prompt.request_id,
            label=prompt.label,
            greedy=greedy,
            forced=await self._forced(prompt_ids, wanted) if wanted else None,
        )

    async def _forced(
        self, prompt_ids: tuple[int, ...], wanted: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """The most likely token at each position of `wanted`, given the prompt and all before it.

        None when the engine refuses, or does not say for one position.
        """
        body: dict[str, Json] = {
            "model": self.model,
            "prompt": [*prompt_ids, *wanted],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 1,
        }
        document = await self._asked(COMPLETION_PATH, body)
        if document is None:
            return None
        positions = _choice(document).get("prompt_logprobs")
        if not isinstance(positions, list) or len(positions) != len(prompt_ids) + len(wanted):
            return None
        likely = [_most_likely(position) for position in positions[len(prompt_ids) :]]
        found = tuple(token for token in likely if token is not None)
        return found if len(found) == len(wanted) else None

    async def _asked(self, path: str, body: Mapping[str, Json]) -> Document | None:
        """The answer's document; None for a request that the engine refuses."""
        try:
            response = await self.client.post(path, json=body)
            status = response.status_code
            document = response.json() if status == _OK else {}
        except (httpx.HTTPError, ValueError) as error:
            raise QualityGivenUp(type(error).__name__) from None
        if status >= _SERVER_ERROR or not isinstance(document, dict):
            raise QualityGivenUp(f"HTTP {status}")
        return document if status == _OK else None


def _choice(document: Document) -> Document:
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise QualityGivenUp("an answer without a choice")
    return choices[0]


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise QualityGivenUp("an answer without token ids")
    return tuple(value)


def _most_likely(position: object) -> int | None:
    """The token of rank 1 among ``{token id: {"logprob": ..., "rank": ...}}``."""
    if not isinstance(position, dict):
        return None
    for token, found in position.items():
        if isinstance(found, dict) and found.get("rank") == 1:
            return int(token)
    return None
