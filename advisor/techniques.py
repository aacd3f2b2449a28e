"""Every technique, described once: what it toggles, what it needs, what it can break.

Planner, command line, verdict text, dashboard cards and docs read it from here; adding a
technique is adding a row to `TECHNIQUES` (and a lever to `serving.Levers` if it is new).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from advisor.errors import InvalidInput, UnknownName
from advisor.serving import LEVER_NAMES, LeverValue, NgramSpeculation, ServingConfig


class Sense(StrEnum):
    """How a technique is toggled against the baseline."""

    ADDED = "added"  # the baseline lacks it: the variant switches it on
    REMOVED = "removed"  # the baseline has it: the variant switches it off


class Need(StrEnum):
    """What an upload must hold for a technique's effect to be measurable at all."""

    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """One lever with its settings.

    `changes` are the lever values of the variant that is tried against the baseline. For a
    `REMOVED` technique the effect is baseline over variant, for an `ADDED` one variant over
    baseline, so an effect above 1 always means that the technique helps.
    `concurrencies` are loads (requests in flight) worth probing besides the goal's own.
    `why_helps` and `why_not` complete "… because …" in a verdict.
    """

    key: str
    title: str
    sense: Sense
    changes: Mapping[str, LeverValue]
    concurrencies: tuple[int, ...]
    suits: str
    breaks: str
    why_helps: str
    why_not: str
    needs: frozenset[Need] = frozenset()
    changes_outputs: bool = False

    def __post_init__(self) -> None:
        if not self.changes:
            raise InvalidInput(f"technique.{self.key}", "toggles nothing")
        for name in self.changes:
            if name not in LEVER_NAMES:
                raise UnknownName("lever", name, LEVER_NAMES)

    def variant(self, baseline: ServingConfig) -> ServingConfig:
        """The baseline with this technique toggled."""
        return baseline.changed(self.changes)

    def effect(self, *, baseline: float, variant: float) -> float:
        """Gain of having the technique, from a figure of which more is better."""
        if self.sense is Sense.REMOVED:
            return baseline / variant
        return variant / baseline


TECHNIQUES: tuple[Technique, ...] = (
    Technique(
        key="continuous_batching",
        title="Continuous batching",
        sense=Sense.REMOVED,
        changes={"max_num_seqs": 1},
        concurrencies=(),
        suits="several requests in flight at once",
        breaks="each request decodes more slowly than alone",
        why_helps="one read of the weights serves every running request",
        why_not="a single stream leaves nothing to batch, or the device is compute-bound already",
    ),
    Technique(
        key="prefix_caching",
        title="Prefix caching",
        sense=Sense.REMOVED,
        changes={"enable_prefix_caching": False},
        concurrencies=(),
        suits="prompts that begin with the same text: system prompts, turns of one session",
        breaks="nothing in the outputs; hashing costs a little of the processor",
        why_helps="shared prompt blocks are computed once and reused",
        why_not="too few prompt tokens repeat in whole cache blocks",
    ),
    Technique(
        key="ngram_speculation",
        title="N-gram speculative decoding (k=4)",
        sense=Sense.ADDED,
        changes={
            "speculative_config": NgramSpeculation(
                num_speculative_tokens=4, prompt_lookup_max=4, prompt_lookup_min=2
            )
        },
        concurrencies=(1,),
        suits="outputs that copy from their prompt, at small batch",
        breaks="spends arithmetic on rejected drafts; switches asynchronous scheduling off",
        why_helps="accepted draft tokens save whole passes over the weights",
        why_not="drafts are rarely accepted, or the batch leaves no spare arithmetic to verify them",
        needs=frozenset({Need.TEXT}),
    ),
    Technique(
        key="half_precision",
        title="16-bit weights and arithmetic (bf16 instead of fp32)",
        sense=Sense.REMOVED,
        changes={"dtype": "float32"},
        concurrencies=(1,),
        suits="memory-bound decoding, and devices with 16-bit matrix units",
        breaks="rounding; a processor without 16-bit arithmetic converts and can be slower",
        why_helps="half as many weight bytes are read per step",
        why_not="this device computes 16-bit numbers no faster than 32-bit ones",
        changes_outputs=True,
    ),
)


def technique(key: str) -> Technique:
    """Exact look-up by key; raises `UnknownName` that lists the known ones."""
    for item in TECHNIQUES:
        if item.key == key:
            return item
    raise UnknownName("technique", key, [item.key for item in TECHNIQUES])
