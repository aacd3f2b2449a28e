"""The steady state of a closed loop in closed form, for all concurrencies at once.

Continuous batching with unequal lengths: a request needs ``m = ceil(P / c)`` steps that read its
prompt (c: the token budget that decodes leave) and ``L - 1`` steps that decode, so with B requests
running and x prompts admitted per step ``B = x (w + m + L - 1)``, w the steps that a prompt waits
behind others. Prompts queue for the budget: a closed network of one queue with service of
``s = P / c`` steps and a delay of ``L - 1`` steps, by approximate mean value analysis (Schweitzer:
an arrival sees ``(B - 1) / B`` of the queue) for constant service (the prompt in service is half
read). Steps with prompts take longer; a request's TPOT is the mean step while the prompts of the
other B - 1 requests pass: ``E[t] = (1 - u) t(n, 0) + u t(n, x P / u)``, u the share of steps with
prompts, ``1 - exp(-x)`` for prompts that fit into a step (Poisson) and ``x s`` otherwise.

What it leaves out: the burst at the start and the end of a test, equal lengths (which keep in
step with each other), preemption. `run_closed_loop` plays those.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.closed_loop.loop import ClosedLoop
from advisor.roofline.step.curves import across_each, along_each
from advisor.roofline.step.steptime import StepTables

Floats = NDArray[np.float64]
_ROUNDS = 60
_FULL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Arrays by concurrency: means in seconds, requests running, requests and tokens per second.

    `prompt_share` is the share of steps that read prompts.
    """

    concurrency: Floats
    running: Floats
    ttft_s: Floats
    tpot_s: Floats
    requests_per_s: Floats
    output_tokens_per_s: Floats
    prompt_share: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Flow of requests in units of steps: prompts per step, decodes in a step, queue and budget."""

    prompts: Floats
    decoding: Floats
    waited: Floats
    budget: Floats


def steady_state(loop: ClosedLoop, tables: StepTables, concurrency: Floats) -> SteadyState:
    """The loop of `loop` at each concurrency (its own is not read); lengths are their means.

    Raises `InvalidInput` for tables whose attention is joint.
    """
    if tables.joint is not None:
        raise InvalidInput("tables.joint", "is not understood by the closed loop")
    flight = np.asarray(concurrency, dtype=np.float64)
    prompt, output = (
        max(1.0, tokens * loop.mean_share) for tokens in (loop.prompt_tokens, loop.output_tokens)
    )
    running = np.minimum(flight, float(loop.max_num_seqs))
    if loop.cache_tokens is not None:
        # A request holds its prompt and on average half of its answer (handbook 4.1).
        room = max(1.0, loop.cache_tokens / (prompt + output / 2))
        running = np.minimum(running, room)
    flow = _flow(running, prompt, output, float(loop.max_num_batched_tokens))
    context = prompt + output / 2
    attention = _prompt_attention_s(tables, prompt, flow.budget)
    service, apart = prompt / flow.budget, np.maximum(0.0, running - 1) / running

    def steps_s(decoding: Floats, prompts: Floats) -> tuple[Floats, Floats]:
        """Mean step, and mean step that reads prompts, with so many decodes and prompts a step."""
        share = _share(prompts, service)
        busy = np.maximum(share, 1e-12)
        mixed = _step_s(
            tables,
            (decoding, context),
            (prompts * prompt / busy, np.maximum(1.0, prompts / busy), prompts * attention / busy),
        )
        bare = _step_s(tables, (decoding, context), (np.zeros_like(decoding),) * 3)
        return (1 - share) * bare + share * mixed, mixed

    # What a request sees are the other requests, and itself.
    others = flow.prompts * apart
    tpot, _ = steps_s(1 + flow.decoding * apart, others)
    mean, mixed = steps_s(flow.decoding, flow.prompts)
    own = _own_s(tables, (flow.decoding * apart, context), (prompt, flow.budget, attention), others)
    requests_per_s = flow.prompts / mean
    # Where prompts fill every step the wait is what Little's law leaves of the cycle.
    queued = running / requests_per_s - (output - 1) * tpot
    in_engine = np.where(
        flow.prompts * service > _FULL,
        np.maximum(own, queued),
        flow.waited * mixed + own,
    )
    for_slot = np.maximum(0.0, flight / requests_per_s - in_engine - (output - 1) * tpot)
    for_slot = np.where(flight > running, for_slot, 0.0)
    ttft = loop.delay_s + loop.answer_s + loop.lag_steps * tpot + in_engine + for_slot
    cycle = ttft + (output - 1) * tpot
    requests_per_s = np.minimum(requests_per_s, flight / cycle)
    return SteadyState(
        concurrency=flight,
        running=running,
        ttft_s=ttft,
        tpot_s=tpot if output > 1 else np.zeros_like(tpot),
        requests_per_s=requests_per_s,
        output_tokens_per_s=requests_per_s * output,
        prompt_share=_share(flow.prompts, service),
    )


def burst_ttft_s(loop: ClosedLoop, tables: StepTables) -> float:
    """Mean TTFT of the first requests of a test, which all arrive at once: budget by budget."""
    prompt = max(1.0, loop.prompt_tokens * loop.mean_share)
    count = min(loop.concurrency, loop.max_num_seqs)
    attention = _prompt_attention_s(tables, prompt, np.array([loop.max_num_batched_tokens]))
    clock, read, answered, total = 0.0, 0.0, 0, 0.0
    while answered < count:
        tokens = min(loop.max_num_batched_tokens - answered, count * prompt - read)
        chunks = math.ceil((read + tokens) / prompt) - math.floor(read / prompt)
        arrays = [np.array([float(x)]) for x in (answered, tokens, chunks)]
        work = (arrays[1], arrays[2], attention * tokens / prompt)
        clock += float(_step_s(tables, (arrays[0], prompt), work)[0])
        read += tokens
        finished = count if read >= count * prompt else math.floor(read / prompt)
        total += clock * (finished - answered)
        answered = finished
    return total / count + loop.delay_s + loop.answer_s


def _flow(running: Floats, prompt: float, output: float, most: float) -> _Steps:
    """Prompts per step and the queue for the budget, by fixed-point rounds."""
    delay = output - 1
    decoding = running * delay / (delay + 1)
    prompts = running / (delay + 1)
    waited = np.zeros_like(running)
    queue = np.zeros_like(running)
    budget = np.maximum(1.0, most - decoding)
    for _ in range(_ROUNDS):
        budget = np.maximum(1.0, most - decoding)
        service = prompt / budget
        seen = queue * np.maximum(0.0, running - 1) / running
        busy = np.minimum(1.0, prompts * service)
        waited = np.maximum(0.0, service * (seen - busy / 2))
        inside = waited + np.maximum(1.0, service)
        new = running / (delay + inside)
        prompts = 0.5 * (prompts + np.minimum(new, budget / prompt))
        # Only what exceeds a step's budget queues; a prompt within it is read in its own step.
        queue = prompts * (waited + service)
        decoding = np.minimum(running, prompts * delay)
    return _Steps(prompts=prompts, decoding=decoding, waited=waited, budget=budget)


def _share(prompts: Floats, service: Floats) -> Floats:
    """Share of steps that read prompts."""
    return np.asarray(np.minimum(1.0, np.maximum(1 - np.exp(-prompts), prompts * service)))


def _prompt_attention_s(tables: StepTables, prompt: float, budget: Floats) -> Floats:
    """Attention of one whole prompt in its chunks, by the midpoint of each chunk's size."""
    chunks = np.maximum(1.0, np.ceil(prompt / budget))
    size = prompt / chunks
    total = np.zeros_like(size)
    for chunk in range(int(chunks.max())):
        cached = chunk * size
        total = total + np.where(
            chunk < chunks,
            across_each((tables.new, tables.cached), tables.prefill_s, (size, cached)),
            0.0,
        )
    return total


def _own_s(
    tables: StepTables,
    decodes: tuple[Floats, float],
    own: tuple[float, Floats, Floats],
    others: Floats,
) -> Floats:
    """Seconds of the steps that read one prompt: whole budgets, then the rest.

    The last of them reads what else arrived with it, up to the budget: `others` prompts a step.
    """
    prompt, budget, attention = own
    whole = np.maximum(0.0, np.ceil(prompt / budget) - 1)
    rest = prompt - whole * budget
    one = np.ones_like(budget)
    full = _step_s(tables, decodes, (budget, one, attention * budget / prompt))
    beside = np.minimum(budget - rest, others * prompt)
    last = _step_s(
        tables, decodes, (rest + beside, one + others, attention * (rest + beside) / prompt)
    )
    return np.asarray(whole * full + last)


def _step_s(
    tables: StepTables, decodes: tuple[Floats, float], prompts: tuple[Floats, Floats, Floats]
) -> Floats:
    """Seconds of a step, element by element: (decodes, context), (tokens, chunks, attention)."""
    decoding, context = decodes
    tokens, chunks, attention_s = prompts
    alone = across_each(
        (tables.requests, tables.contexts),
        tables.decode_s,
        (decoding, np.full_like(decoding, context)),
    )
    device = (
        attention_s
        + along_each(tables.tokens, tables.dense_s, decoding + tokens)
        + along_each(tables.rows, tables.head_s, decoding + chunks)
        + np.where(decoding > 0, alone, 0.0)
    )
    host = tables.host_s + tables.host_request_s * (decoding + chunks)
    return np.asarray(np.maximum(device, host) if tables.async_scheduling else device + host)
