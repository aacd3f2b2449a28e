"""Whether techniques that others toggled helped, hurt or changed nothing: told and measured.

Rules, written with the measured rows in view and before the first prediction: every row of the
named files that has a partner without the technique is an arm, once for each goal that its file
states; a change within `BAND` is neutral; the sign that is told is that of the prediction's centre;
an arm without a model counts as not right. Left out are only rows without a partner (TensorRT-LLM's
in Argonne's quantization file, one each of Llama-2-70B and Mixtral in its draft file) and second
readings of one measurement (LMCache's input and output rates beside the total); what of the
performance lab is admitted says its module.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures import Figure
from tests.validate.effects.arms import BAND, Arm, Sign, sign
from tests.validate.effects.cache import lmcache_arms
from tests.validate.effects.lab import lab_arms
from tests.validate.effects.offline import offline_arms
from tests.validate.effects.serving import kubecon_arms, quantization_arms
from tests.validate.report import Point, ValidationSet

NOT_MODELLED = (
    "which kernels and backends a release chose, beyond the rules in advisor/roofline/published.py",
    "what a benchmark left in the prefix cache before an arm was measured",
    "acceptance of drafts on the very text (assumed between none and the published one)",
    "work of the host for storing and looking up an offloaded cache",
    "pipelines, multi-token prediction and sparse attention (their arms count as not right)",
)
NOTES = (
    (
        "The intervals of this set hold the ranges of the machine, no error of the model's form, "
        "so they are far too narrow: they hold a third of the arms. They are no 90 % intervals and "
        "are left out of the pooled coverage, which would fall to about 79 % with them. A forecast "
        "of a gain before any measurement has the same weakness."
    ),
    (
        "The first predictions of the arms beside the performance lab's told 112 of 183 signs and "
        "called 18 losers winners. Then three rules were added, each from a source of its own and "
        "for every arm of such a release or card: attention of releases before 0.8 on an 8-bit "
        "cache, kernels of Ampere on Hopper, verification by batch expansion before 0.6.3; and "
        "KubeCon's overloaded stages are played with requests that always wait. Between the two "
        "runs the priors of unpacking kernels were read anew from a public kernel table."
    ),
    (
        "gpustack's A100 baseline has a mean TTFT of 3.4 s for 1,000 prompts at once, which takes "
        "about 520 TFLOP/s of a card whose peak is 312: its prompts were cached, those of six of "
        "its seven rivals were not. The arms are kept."
    ),
    (
        "The bitsandbytes arm of KubeCon passed option and value as one word, which is no option: "
        "what is predicted is what ran, prefix caching with chunked prefill."
    ),
)


def effects_arms(measurements: Path) -> tuple[Arm, ...]:
    """Every arm of every file."""
    return (
        *kubecon_arms(measurements),
        *quantization_arms(measurements),
        *lmcache_arms(measurements),
        *offline_arms(measurements),
        *lab_arms(measurements),
    )


def validation(measurements: Path) -> ValidationSet:
    """Signs of all arms, by file and together."""
    arms = effects_arms(measurements)
    sources = list(dict.fromkeys(arm.source for arm in arms))
    return ValidationSet(
        name="effects",
        title="Technique effects",
        what=(
            f"What a technique did to the goal of its comparison, as a gain above 1; within "
            f"{BAND:.0%} it did nothing. Predicted from datasheets and published priors, without "
            "any measurement of the arms or their baselines."
        ),
        points=tuple(_point(arm) for arm in arms if arm.predicted is not None),
        figures=(
            *_figures("", arms),
            *(
                figure
                for source in sources
                for figure in _figures(
                    f"_{source.replace(' ', '_')}", [arm for arm in arms if arm.source == source]
                )
            ),
        ),
        not_modelled=NOT_MODELLED,
        notes=NOTES,
        pooled=False,
    )


def _point(arm: Arm) -> Point:
    assert arm.predicted is not None
    return Point(
        series=arm.source,
        label=f"{arm.label}: {arm.technique}, {arm.goal}",
        measured=arm.measured,
        predicted=arm.predicted,
    )


def _figures(suffix: str, arms: Sequence[Arm]) -> tuple[Figure, ...]:
    right = sum(arm.right for arm in arms)
    losers = [arm for arm in arms if sign(arm.measured) is Sign.HURTS]
    called = sum(arm.loser_called_winner for arm in arms)
    return (
        Figure(
            name=f"effects{suffix}_sign_right",
            value=right / len(arms),
            unit="fraction",
            better="higher",
            detail=f"{right} of {len(arms)} arms, neutral within {BAND:.0%}",
        ),
        Figure(
            name=f"effects{suffix}_losers_called_winners",
            value=float(called),
            unit="arms",
            better="lower",
            detail=f"of {len(losers)} arms that lost",
        ),
    )
