"""How many tokens the KV cache of a configuration holds before any engine has started."""

from dataclasses import dataclass

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.recommender.cache_share import cache_tokens
from advisor.roofline.memory import memory_budget
from advisor.roofline.memory_plan import memory_plan
from advisor.serving import ServingConfig
from advisor.units import bytes_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """Tokens of the KV cache. `exact` where the settings or the engine name its size.

    Else `tokens` is the centre of what priors leave, within `low` and `high` at the 90 % level;
    None there: as `tokens`.
    """

    tokens: int
    exact: bool
    basis: str
    low: int | None = None
    high: int | None = None

    @property
    def least(self) -> int:
        """Lower end."""
        return self.tokens if self.low is None else self.low

    @property
    def most(self) -> int:
        """Upper end."""
        return self.tokens if self.high is None else self.high

    @property
    def text(self) -> str:
        """The size without its reason."""
        if self.exact or self.least == self.most:
            return f"{self.tokens:,} tokens"
        return f"about {self.tokens:,} tokens, {self.least:,} to {self.most:,}"


def cache_size(model: ModelShape, device: DeviceFacts, config: ServingConfig) -> CacheSize | None:
    """As the settings say, else what the engine's other needs leave of its share of the device.

    The latter is an interval from priors until an engine has started. None where not even two
    blocks are left at its high end.
    """
    stated = cache_tokens(model, device, config)
    if stated is not None:
        space = config.functional.kv_cache_space_gib
        return CacheSize(tokens=stated, exact=True, basis=f"a cache of {space} GiB")
    plan = memory_plan(model, device, config)
    budget = memory_budget(plan)
    tokens = budget.tokens
    if not tokens.high:
        return None
    others = budget.requested_bytes - budget.kv_bytes.value
    return CacheSize(
        tokens=int(tokens.value),
        exact=False,
        basis=f"{plan.device.utilization:.0%} of {bytes_text(device.memory_bytes)} less"
        f" {bytes_text(others)} of weights, activations and graphs",
        low=int(tokens.low),
        high=int(tokens.high),
    )


def cache_sentence(found: CacheSize | None) -> str:
    """The size for a person."""
    if found is None:
        return "The weights leave no room for a KV cache on this device."
    return f"The KV cache holds {found.text} ({found.basis})."
