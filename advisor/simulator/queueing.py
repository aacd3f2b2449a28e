"""Closed forms of queueing: what the simulator must agree with, and when they stand in for it.

Handbook 5.1 and 5.2. Times in seconds, rates per second; a queue that only grows takes forever
(infinity).
"""

import math
from dataclasses import dataclass

from scipy.special import betainc

from advisor.errors import InvalidInput

# Where the closed form stands in for the simulator (handbook 5.2: 1 % at load 0.25, 4 % at 0.61,
# 12 % at 0.86 in runs of finite length).
EXACT_LOAD = 0.85
# How often the running requests may reach a cap that the closed form does not know.
EXACT_CAP_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSharing:
    """Continuous batching without caps: all requests share a step of ``T0 + T1 n`` seconds.

    Poisson arrivals of `arrival_rate_per_s`; a request has `output_tokens` in the mean, whatever
    their distribution, and `prompt_s` is what computing its prompt adds to the steps of others.
    The number of requests in the engine is negative binomial. Handbook 5.2.
    """

    arrival_rate_per_s: float
    output_tokens: float
    fixed_s: float
    request_s: float
    prompt_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("arrival_rate_per_s", "output_tokens", "fixed_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(name, "is not above 0")
        for name in ("request_s", "prompt_s"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, "is below 0")

    @property
    def load(self) -> float:
        """Share of time that is gone whatever the batch: the engine is stable below 1."""
        each = self.output_tokens * self.request_s + self.prompt_s
        return self.arrival_rate_per_s * each

    @property
    def stable(self) -> bool:
        """Whether the queue stays finite."""
        return self.load < 1

    @property
    def highest_rate_per_s(self) -> float:
        """Arrivals at which it stops being stable; infinite where requests add no time."""
        each = self.output_tokens * self.request_s + self.prompt_s
        return 1 / each if each else math.inf

    @property
    def running(self) -> float:
        """Mean requests in the engine."""
        if not self.stable:
            return math.inf
        offered = self.arrival_rate_per_s * self.output_tokens
        return offered * (self.fixed_s + self.request_s) / (1 - self.load)

    @property
    def tpot_s(self) -> float:
        """Mean time per output token."""
        return (self.fixed_s + self.request_s) / (1 - self.load) if self.stable else math.inf

    @property
    def decode_s(self) -> float:
        """Mean time from the first step of an answer to its last token."""
        return self.output_tokens * self.tpot_s

    def share_above(self, requests: int) -> float:
        """Share of time with more than so many requests in the engine."""
        if not self.stable:
            return 1.0
        offered = self.arrival_rate_per_s * self.output_tokens * self.fixed_s
        if self.load == 0:
            # Infinite servers: Poisson with mean `offered`.
            return 1 - sum(
                math.exp(k * math.log(offered) - offered - math.lgamma(k + 1))
                for k in range(requests + 1)
            )
        return float(betainc(requests + 1, 1 + offered / self.load, self.load))

    def exact_enough(self, cap: int) -> bool:
        """Whether it may stand in for the simulator of an engine that runs `cap` at most.

        True for a load that is not too near the edge, and a cap that is hardly ever reached.
        Arrivals must be Poisson, prompts small beside the token budget, and nothing shared or
        drafted: that is for the caller to know.
        """
        return self.load <= EXACT_LOAD and self.share_above(cap - 1) <= EXACT_CAP_SHARE


def md1_wait_s(arrival_rate_per_s: float, service_s: float) -> float:
    """Mean wait for one server with Poisson arrivals and equal services."""
    return mg1_wait_s(arrival_rate_per_s, service_s, 0.0)


def mg1_wait_s(arrival_rate_per_s: float, service_s: float, service_cv: float) -> float:
    """Mean wait by Pollaczek and Khinchine: ``rate E[S^2] / (2 (1 - load))``."""
    load = arrival_rate_per_s * service_s
    if load >= 1:
        return math.inf
    return arrival_rate_per_s * service_s**2 * (1 + service_cv**2) / (2 * (1 - load))


def gg1_wait_s(
    arrival_rate_per_s: float, service_s: float, *, arrival_cv: float, service_cv: float
) -> float:
    """Mean wait by Kingman's approximation, near full load and for any arrivals."""
    load = arrival_rate_per_s * service_s
    if load >= 1:
        return math.inf
    return load / (1 - load) * (arrival_cv**2 + service_cv**2) / 2 * service_s


def prefill_ttft_s(arrival_rate_per_s: float, prompt_s: float) -> float:
    """Mean TTFT of an engine that only computes prompts, one by one (DistServe, section 3)."""
    return prompt_s + md1_wait_s(arrival_rate_per_s, prompt_s)


def pipelined_ttft_s(arrival_rate_per_s: float, prompt_s: float, slowest_stage_s: float) -> float:
    """The same over the stages of a pipeline: waiting is for the slowest one."""
    return prompt_s + md1_wait_s(arrival_rate_per_s, slowest_stage_s)


def sharded_ttft_s(arrival_rate_per_s: float, prompt_s: float, speedup: float) -> float:
    """The same where ranks compute each prompt `speedup` times as fast."""
    return prefill_ttft_s(arrival_rate_per_s, prompt_s / speedup)


def exponential_static_waste(batch: int) -> float:
    """Share of decode slots that a static batch wastes on exponential lengths: ``1 - 1 / H_B``."""
    return 1 - 1 / sum(1 / k for k in range(1, batch + 1))


def batch_formation_s(arrival_rate_per_s: float, batch: int) -> float:
    """Mean time that a request waits for its static batch to fill under Poisson arrivals."""
    return (batch - 1) / (2 * arrival_rate_per_s)
