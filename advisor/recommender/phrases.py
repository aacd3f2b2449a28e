"""Findings beside the verdicts, each in a sentence: load, quality, confirmation, paging.

Terminal, report and dashboard say them in the same words.
"""

from collections.abc import Mapping

from advisor.estimate import Estimate
from advisor.measurement.quality import QualityFigures
from advisor.measurement.saturation import Saturation
from advisor.recommender.explain import interval_text
from advisor.recommender.recommendation import (
    Confirmation,
    PagingPicture,
    QualityVerdict,
    Recommendation,
)
from advisor.serving import LeverValue, NgramSpeculation, WeightQuantization
from advisor.traffic.phrases import distance_sentence


def setting_text(value: LeverValue) -> str:
    """A lever's value as vLLM takes it."""
    if isinstance(value, NgramSpeculation):
        window = f"{value.prompt_lookup_min} to {value.prompt_lookup_max}"
        return f"{value.method}, k={value.num_speculative_tokens}, n-grams of {window} tokens"
    if isinstance(value, WeightQuantization):
        return f"{value.scheme} by {value.algorithm}"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def settings_text(overrides: Mapping[str, LeverValue]) -> str:
    """What a configuration sets away from vLLM's defaults."""
    parts = [f"{name} = {setting_text(value)}" for name, value in overrides.items()]
    return ", ".join(parts) or "vLLM's defaults"


def load_text(concurrency: int) -> str:
    """``1 request in flight``."""
    return f"{concurrency} request{'' if concurrency == 1 else 's'} in flight"


def span_text(estimate: Estimate, *, scale: float = 1.0, digits: int = 1, unit: str = "") -> str:
    """``12.3 tok/s (11.0 to 13.5)``; values are divided by `scale`."""
    value, low, high = (
        f"{number / scale:,.{digits}f}" for number in (estimate.value, estimate.low, estimate.high)
    )
    shown = f"{value} {unit}".strip()
    return shown if low == high else f"{shown} ({low} to {high})"


def share_text(share: Estimate) -> str:
    """A share of one in percent with its interval."""
    return span_text(share, scale=0.01, unit="%")


def saturation_sentence(found: Saturation) -> str:
    """Where the baseline saturates and what holds it there."""
    top = max(rung.concurrency for rung in found.rungs)
    if not found.saturated:
        return (
            f"The baseline is not saturated at {load_text(top)}, the highest load tested:"
            f" {found.reason}."
        )
    plateau = span_text(found.plateau_tokens_per_s, unit="tok/s")
    return (
        f"The baseline saturates at {span_text(found.concurrency)} requests in flight, at"
        f" {plateau}; what binds is {found.binding.value}: {found.reason}."
    )


def quality_sentence(found: QualityVerdict, title: str, floor: float | None) -> str:
    """How far a technique changes the answers, and whether that keeps the goal's floor."""
    figures = found.figures
    if figures is None or figures.top1_agreement is None:
        return f"{title}: quality not measured: {found.reason}."
    kept = {True: "within the goal's floor", False: "below the goal's floor", None: "no floor"}
    limit = "" if floor is None else f" of {floor:.0%}"
    return (
        f"{title}: the most likely token is the baseline's at {share_text(figures.top1_agreement)}"
        f" of {figures.tokens:,} positions ({kept[found.within]}{limit}){_tolerance(found)};"
        f" {found.reason}."
    )


def _tolerance(found: QualityVerdict) -> str:
    itself: QualityFigures | None = found.tolerance
    if itself is None or itself.top1_agreement is None:
        return ""
    return f", the baseline agrees with itself at {share_text(itself.top1_agreement)}"


def confirmation_sentence(found: Confirmation, title: str) -> str:
    """What held-out requests say of the finalist."""
    if found.gain is None:
        return f"Not confirmed on held-out requests: {found.reason}."
    says = {
        True: "Confirmed",
        False: "Not confirmed",
        None: "Neither confirmed nor refuted",
    }
    return (
        f"{says[found.confirmed]} on {found.requests:,} held-out requests: {title} against the"
        f" baseline {interval_text(found.gain)} at {load_text(found.concurrency)};"
        f" {found.reason}."
    )


def paging_sentence(found: PagingPicture) -> str:
    """Paged blocks against a reservation of the longest context per request."""
    fits = ""
    if found.paged_requests is not None and found.contiguous_requests is not None:
        fits = (
            f" The engine's cache holds {found.paged_requests:,.1f} requests of this traffic in"
            f" blocks, {found.contiguous_requests:,.1f} reserved whole."
        )
    return (
        f"Paged blocks of {found.block_size} tokens fill {found.paged_share:.0%} of the cache they"
        f" take; reserving {found.reserved_tokens:,} tokens per request would fill"
        f" {found.contiguous_share:.0%} (computed from the lengths).{fits}"
    )


def title_of(body: Recommendation, config_hash: str) -> str:
    """The title of a ranked configuration; the head of its hash where it is not ranked."""
    for item in body.ranked:
        if item.config_hash == config_hash:
            return item.title
    return f"configuration {config_hash[:12]}"


def technique_title(body: Recommendation, key: str) -> str:
    """The title of a technique as its verdict names it; the key where it has none."""
    for verdict in body.verdicts:
        if verdict.technique == key:
            return verdict.title
    return key


def findings(body: Recommendation) -> tuple[str, ...]:
    """Subset, load, confirmation, quality and paging, as far as the study has them."""
    said: list[str] = []
    if body.subset is not None:
        said.append(f"replayed {distance_sentence(body.subset)}")
    if body.saturation is not None:
        said.append(saturation_sentence(body.saturation))
    if body.confirmation is not None:
        title = title_of(body, body.confirmation.config_hash)
        said.append(confirmation_sentence(body.confirmation, title))
    floor = body.goal.min_top1_agreement
    said += [
        quality_sentence(item, technique_title(body, item.technique), floor)
        for item in body.quality
    ]
    if body.paging is not None:
        said.append(paging_sentence(body.paging))
    return tuple(said)
