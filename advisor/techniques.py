"""Every technique, described once: what it toggles, what it needs, what it can break.

Planner, command line, verdict text, dashboard cards and docs read it from here; adding a
technique is adding a row to `TECHNIQUES` (and a lever to `serving.Levers` if it is new).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from advisor.errors import InvalidInput, UnknownName
from advisor.serving import (
    FACT_NAMES,
    LEVER_NAMES,
    LeverValue,
    NgramSpeculation,
    ServingConfig,
    WeightQuantization,
)


class Need(StrEnum):
    """What an upload must hold for a technique's effect to be measurable at all."""

    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """One lever with its two settings.

    `on` are the lever values with the technique, `off` those without it; a configuration has the
    technique unless every lever of `off` stands as written there. A trial toggles it against the
    baseline, whichever side the baseline is on, and a gain above 1 always means that having the
    technique is better.
    `concurrencies` are loads (requests in flight) worth probing besides the goal's own; below
    `least_concurrency` in flight there is nothing for the technique to do.
    `static_slots` marks a technique of submission instead of levers: a closed loop of so many
    requests in flight against gangs of as many, on one and the same configuration.
    On a processor it applies only with one of `cpu_features` (empty: always).
    `why_helps` and `why_not` complete "... because ..." in a verdict. `shows_in` are facts of a
    started engine (`serving.EngineFacts`) that differ if the technique took effect; none: no fact
    shows it.
    """

    key: str
    title: str
    on: Mapping[str, LeverValue]
    off: Mapping[str, LeverValue]
    concurrencies: tuple[int, ...]
    suits: str
    breaks: str
    why_helps: str
    why_not: str
    needs: frozenset[Need] = frozenset()
    changes_outputs: bool = False
    least_concurrency: int = 1
    static_slots: int | None = None
    cpu_features: tuple[str, ...] = ()
    shows_in: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.static_slots is not None:
            if self.on or self.off or self.static_slots <= 1:
                raise InvalidInput(f"technique.{self.key}", "a submission sets no lever")
        elif not self.on or self.on.keys() != self.off.keys():
            raise InvalidInput(f"technique.{self.key}", "must set the same levers on and off")
        for name in self.on:
            if name not in LEVER_NAMES:
                raise UnknownName("lever", name, LEVER_NAMES)
        for name in self.shows_in:
            if name not in FACT_NAMES:
                raise UnknownName("engine fact", name, FACT_NAMES)

    def present(self, config: ServingConfig) -> bool:
        """Whether a configuration has the technique."""
        return any(getattr(config.levers, name) != value for name, value in self.off.items())

    def toggle(self, baseline: ServingConfig) -> Mapping[str, LeverValue]:
        """The lever values that the trial against this baseline changes."""
        return self.off if self.present(baseline) else self.on

    def variant(self, baseline: ServingConfig) -> ServingConfig:
        """The baseline with this technique toggled."""
        return baseline.changed(self.toggle(baseline))

    def gain(self, ratio: float, *, baseline: ServingConfig) -> float:
        """Gain of having the technique, from the figure of the variant over the baseline's."""
        return 1 / ratio if self.present(baseline) else ratio


TECHNIQUES: tuple[Technique, ...] = (
    Technique(
        key="continuous_batching",
        title="Continuous batching",
        on={"max_num_seqs": None},
        off={"max_num_seqs": 1},
        concurrencies=(),
        least_concurrency=2,
        suits="several requests in flight at once",
        breaks="each request decodes more slowly than alone",
        why_helps="one read of the weights serves every running request",
        why_not="a single stream leaves nothing to batch, or the device is compute-bound already",
        shows_in=("max_num_seqs",),
    ),
    Technique(
        key="prefix_caching",
        title="Prefix caching",
        on={"enable_prefix_caching": None},
        off={"enable_prefix_caching": False},
        concurrencies=(),
        suits="prompts that begin with the same text: system prompts, turns of one session",
        breaks="nothing in the outputs; hashing costs a little of the processor",
        why_helps="shared prompt blocks are computed once and reused",
        why_not="too few prompt tokens repeat in whole cache blocks",
        shows_in=("prefix_caching",),
    ),
    Technique(
        key="ngram_speculation",
        title="N-gram speculative decoding (k=4)",
        on={
            "speculative_config": NgramSpeculation(
                num_speculative_tokens=4, prompt_lookup_max=4, prompt_lookup_min=2
            )
        },
        off={"speculative_config": None},
        concurrencies=(1,),
        suits="outputs that copy from their prompt, at small batch",
        breaks="spends arithmetic on rejected drafts; switches asynchronous scheduling off",
        why_helps="accepted draft tokens save whole passes over the weights",
        why_not="drafts are rarely accepted, or the batch leaves no arithmetic to verify them",
        needs=frozenset({Need.TEXT}),
        shows_in=("speculative_method", "speculative_tokens"),
    ),
    Technique(
        key="half_precision",
        title="16-bit weights and arithmetic (bf16 instead of fp32)",
        on={"dtype": "bfloat16"},
        off={"dtype": "float32"},
        concurrencies=(),
        suits="memory-bound decoding, and devices with 16-bit matrix units",
        breaks="rounding; a processor without 16-bit arithmetic converts and can be slower",
        why_helps="half as many weight bytes are read per step",
        why_not="this device computes 16-bit numbers no faster than 32-bit ones",
        changes_outputs=True,
        shows_in=("dtype",),
    ),
    Technique(
        key="continuous_over_static",
        title="Continuous instead of static batching (4 slots)",
        on={},
        off={},
        static_slots=4,
        concurrencies=(4,),
        suits="outputs of very different length",
        breaks="nothing: static batching is not offered by vLLM and is shown for comparison only",
        why_helps="a finished request gives its slot to the next one at once; a gang still drops"
        " its finished rows, so this is a lower bound of what static batching wastes",
        why_not="outputs are about equally long, so that a static batch hardly waits",
    ),
    Technique(
        key="ngram_speculation_short",
        title="N-gram speculative decoding (k=2)",
        on={
            "speculative_config": NgramSpeculation(
                num_speculative_tokens=2, prompt_lookup_max=4, prompt_lookup_min=2
            )
        },
        off={"speculative_config": None},
        concurrencies=(1,),
        suits="outputs that copy from their prompt in short runs, or at larger batch",
        breaks="spends arithmetic on rejected drafts; switches asynchronous scheduling off",
        why_helps="accepted draft tokens save whole passes over the weights",
        why_not="drafts are rarely accepted, or the batch leaves no arithmetic to verify them",
        needs=frozenset({Need.TEXT}),
        shows_in=("speculative_method", "speculative_tokens"),
    ),
    Technique(
        key="int8_weights",
        title="8-bit weights and activations (W8A8)",
        on={"quantization": WeightQuantization(scheme="W8A8", algorithm="gptq")},
        off={"quantization": None},
        concurrencies=(1,),
        suits="memory-bound decoding, and devices with 8-bit matrix units",
        breaks="rounding of weights and activations: outputs change, see the quality figures",
        why_helps="a quarter to half of the weight bytes are read and 8-bit units multiply faster",
        why_not="this device multiplies 8-bit numbers no faster, or quantizing activations costs"
        " more than the bytes saved",
        needs=frozenset({Need.TEXT}),
        changes_outputs=True,
        cpu_features=("avx512_vnni", "avx_vnni", "amx_int8"),
        shows_in=("quantization",),
    ),
)


def technique(key: str) -> Technique:
    """Exact look-up by key; raises `UnknownName` that lists the known ones."""
    for item in TECHNIQUES:
        if item.key == key:
            return item
    raise UnknownName("technique", key, [item.key for item in TECHNIQUES])


def draft_lengths(techniques: Iterable[Technique] = TECHNIQUES) -> tuple[int, ...]:
    """Numbers of tokens that the techniques draft, in the order of the table, each once."""
    drafting = (
        value.num_speculative_tokens
        for item in techniques
        for value in item.on.values()
        if isinstance(value, NgramSpeculation)
    )
    return tuple(dict.fromkeys(drafting))
