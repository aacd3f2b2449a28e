"""What each speculative method of vLLM 0.32 takes with it (handbook 6.2).

Checked against vllm/config/vllm.py (async scheduling, model runner, `num_lookahead_tokens`) and
vllm/config/speculative.py (`max_num_new_slots_for_drafting`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.errors import InvalidInput, UnknownName

Runner = Literal["any", "V1", "V2"]
Drafts = Literal["one by one", "all at once", "looked up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method.

    `keeps_async` is whether async scheduling stays on, `runner` the model runner it needs. `drafts`
    is how k tokens are made: a pass each, one pass, or by look-up without a model. `lookahead` are
    cache slots that a request reserves beyond its tokens, k times `lookahead` plus
    `extra_lookahead`; k times `slots_per_draft` plus `slots` of the token budget are charged per
    request for drafting. `has_cache` means that the drafter keeps keys and values of its own.
    """

    name: str
    keeps_async: bool
    drafts: Drafts
    runner: Runner = "any"
    lookahead: int = 0
    extra_lookahead: int = 0
    slots: int = 0
    slots_per_draft: int = 0
    has_cache: bool = False

    def lookahead_tokens(self, draft_tokens: int) -> int:
        """Cache slots that a request reserves beyond its tokens."""
        if draft_tokens < 0:
            raise InvalidInput("draft_tokens", f"{draft_tokens} is negative")
        if draft_tokens == 0:
            return 0
        return self.lookahead * draft_tokens + self.extra_lookahead

    def budget_tokens(self, draft_tokens: int) -> int:
        """Tokens of a step's budget that one decoding request takes: its own, drafts and slots."""
        if draft_tokens == 0:
            return 1
        return 1 + draft_tokens + self.slots_per_draft * draft_tokens + self.slots

    def passes(self, draft_tokens: int) -> int:
        """Passes of a drafting model for one draft."""
        if self.drafts == "looked up" or draft_tokens == 0:
            return 0
        return draft_tokens if self.drafts == "one by one" else 1


METHODS: Mapping[str, Method] = {
    item.name: item
    for item in (
        Method(name="ngram", keeps_async=False, drafts="looked up"),
        Method(name="ngram_gpu", keeps_async=True, drafts="looked up"),
        Method(name="suffix", keeps_async=False, drafts="looked up", runner="V1"),
        Method(
            name="draft_model",
            keeps_async=True,
            drafts="one by one",
            lookahead=1,
            slots=1,
            has_cache=True,
        ),
        Method(name="eagle", keeps_async=True, drafts="one by one", lookahead=1, has_cache=True),
        Method(name="eagle3", keeps_async=True, drafts="one by one", lookahead=1, has_cache=True),
        Method(name="mtp", keeps_async=True, drafts="one by one", lookahead=1, has_cache=True),
        Method(name="medusa", keeps_async=False, drafts="all at once", runner="V1"),
        Method(name="mlp_speculator", keeps_async=False, drafts="one by one", runner="V1"),
        Method(
            name="dflash",
            keeps_async=True,
            drafts="all at once",
            lookahead=1,
            extra_lookahead=1,
            slots_per_draft=1,
            has_cache=True,
        ),
        Method(
            name="dspark",
            keeps_async=True,
            drafts="all at once",
            runner="V2",
            lookahead=1,
            slots_per_draft=1,
            slots=-1,
            has_cache=True,
        ),
        Method(name="custom_class", keeps_async=False, drafts="one by one", runner="V1"),
    )
}


def method(name: str) -> Method:
    """Exact look-up by vLLM's name; raises `UnknownName` that lists the known ones."""
    try:
        return METHODS[name]
    except KeyError:
        raise UnknownName("speculative method", name, list(METHODS)) from None
