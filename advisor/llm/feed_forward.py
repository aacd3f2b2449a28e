"""The other half of a layer: one network, or experts of which a few work (handbook 1.1, 1.3)."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.errors import InvalidInput

# Real routing is skewed: a step touches about as many experts as uniform routing of so large a
# share of its tokens would (handbook 1.3, s_r).
ROUTING_SKEW = (0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFeedForward:
    """One network for every token; `gated` has three matrices instead of two."""

    intermediate: int
    gated: bool = True
    bias: bool = False
    kind: Literal["dense"] = "dense"

    def __post_init__(self) -> None:
        if self.intermediate < 1:
            raise InvalidInput("model.intermediate", f"{self.intermediate} is below 1")

    def matmul_parameters(self, hidden: int) -> int:
        return (3 if self.gated else 2) * hidden * self.intermediate

    def router_parameters(self, hidden: int) -> int:
        """Matrix weights that choose among experts: none."""
        del hidden
        return 0

    def active_parameters(self, hidden: int) -> int:
        """Matrix weights that one token multiplies with: all."""
        return self.matmul_parameters(hidden)

    def touched_parameters(self, hidden: int, tokens: float, skew: float = 1.0) -> float:
        """Matrix weights that a step of `tokens` reads: all."""
        del skew
        return float(self.matmul_parameters(hidden)) if tokens > 0 else 0.0

    def extra_parameters(self, hidden: int) -> int:
        wide = (2 if self.gated else 1) * self.intermediate
        return wide + hidden if self.bias else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`active` of `experts` networks per token, chosen by a router; shared ones always work.

    `shared_intermediate` is the width of all shared experts together, `shared_gate` a gate on
    them; `bias` is on router and experts (gpt-oss). Without `gated` an expert has two matrices
    instead of three.
    """

    experts: int
    active: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    bias: bool = False
    gated: bool = True
    kind: Literal["experts"] = "experts"

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.experts:
            raise InvalidInput("model.experts", f"{self.active} of {self.experts} work")
        if self.intermediate < 1 or self.shared_intermediate < 0:
            raise InvalidInput("model.experts", f"{self.intermediate} wide")

    def router_parameters(self, hidden: int) -> int:
        """Matrix weights that choose among experts; they stay in the model's dtype."""
        return hidden * self.experts + (hidden if self.shared_gate else 0)

    def _matrix(self, hidden: int) -> int:
        return (3 if self.gated else 2) * hidden * self.intermediate

    def _always(self, hidden: int) -> int:
        shared = (3 if self.gated else 2) * hidden * self.shared_intermediate
        return self.router_parameters(hidden) + shared

    def matmul_parameters(self, hidden: int) -> int:
        return self._always(hidden) + self.experts * self._matrix(hidden)

    def active_parameters(self, hidden: int) -> int:
        """Matrix weights that one token multiplies with."""
        return self._always(hidden) + self.active * self._matrix(hidden)

    def distinct(self, tokens: float, skew: float = 1.0) -> float:
        """Experts that `tokens` of one step touch: E (1 - (1 - k/E)^T), uniform routing.

        `skew` is the share of the tokens that counts where routing is not uniform
        (`ROUTING_SKEW`); the first token always touches its own.
        """
        counted = min(tokens, max(1.0, skew * tokens))
        return float(self.experts * (1 - (1 - self.active / self.experts) ** counted))

    def touched_parameters(self, hidden: int, tokens: float, skew: float = 1.0) -> float:
        """Matrix weights that a step of `tokens` reads."""
        if tokens <= 0:
            return 0.0
        return self._always(hidden) + self.distinct(tokens, skew) * self._matrix(hidden)

    def extra_parameters(self, hidden: int) -> int:
        each = (2 if self.gated else 1) * self.intermediate + hidden
        return self.experts * (1 + each) if self.bias else 0


FeedForward: TypeAlias = DenseFeedForward | Experts
