"""What a report of a recommendation says, section by section."""

from collections.abc import Mapping

from advisor.estimate import Estimate
from advisor.recommender import phrases
from advisor.recommender.recommendation import QualityVerdict, Recommendation
from advisor.traffic.phrases import distance_sentence
from advisor.units import bytes_text
from api.charts import labels
from api.charts.gallery import charts_of
from api.documents.blocks import Block, Bullets, Document, Paragraph, Picture, Section, Table
from api.documents.outside import outside_section
from api.schemas import ChartView, RecommendationView

UNSAID = "not reported"
SHORT_HASH = 12


def document(found: RecommendationView) -> Document:
    """The whole report; no request text is in a recommendation, so none is here."""
    body = found.body
    charts = {chart.key: chart for chart in charts_of(body)}
    elsewhere = outside_section(found.outside)
    return Document(
        title="Rooftune recommendation",
        lead=_lead(found),
        sections=(
            _ranking(body, charts),
            _verdicts(body, charts),
            _load(body, charts),
            _quality(body),
            _confirmation(body),
            _memory(body, charts),
            _model(charts),
            _baseline(body),
            *(() if elsewhere is None else (elsewhere,)),
            _provenance(found),
            _reviews(found),
        ),
    )


def _lead(found: RecommendationView) -> tuple[Block, ...]:
    body = found.body
    blocks: list[Block] = [
        Paragraph(
            text=f"Measured on {body.machine} with vLLM {body.engine_version}:"
            f" {body.requests_measured:,} requests, goal {body.goal.objective.value} at"
            f" {phrases.load_text(body.goal.concurrency)}. State: {found.state.value}."
        )
    ]
    if body.subset is not None:
        blocks.append(Paragraph(text=f"Replayed {distance_sentence(body.subset)}"))
    if body.ranked:
        best = body.best
        blocks.append(
            Paragraph(
                text=f"Recommended: {best.title},"
                f" {labels.spread(best.throughput_tokens_per_s, unit='tok/s')},"
                f" {labels.gain(best.gain)} over the baseline"
                f" ({labels.origin(best.throughput_tokens_per_s)})."
            )
        )
    if not body.conclusive:
        text = "Not conclusive: no configuration is better than the baseline beyond noise."
        blocks.append(Paragraph(text=text, alert=True))
    blocks += [Paragraph(text=warning, alert=True) for warning in body.warnings]
    return tuple(blocks)


def _ranking(body: Recommendation, charts: Mapping[str, ChartView]) -> Section:
    settings = Table(
        columns=("#", "settings away from vLLM's defaults", "from", "configuration hash"),
        rows=tuple(
            (
                str(item.rank),
                phrases.settings_text(item.config.overrides()),
                labels.origin(item.throughput_tokens_per_s),
                item.config_hash[:SHORT_HASH],
            )
            for item in body.ranked
        ),
    )
    return Section(
        title="Ranked configurations", blocks=(Picture(chart=charts["ranking"]), settings)
    )


def _verdicts(body: Recommendation, charts: Mapping[str, ChartView]) -> Section:
    sentences = tuple(f"{item.kind.value}: {item.sentence}" for item in body.verdicts)
    blocks: list[Block] = [Bullets(items=sentences), Picture(chart=charts["gains"])]
    blocks += [Picture(chart=charts[key]) for key in ("acceptance", "classes")]
    noise = body.noise
    blocks.append(
        Paragraph(
            text=f"Noise floor: {labels.share(noise.relative_sd)} of a figure between"
            f" {noise.repeats} repeats ({labels.origin(noise.relative_sd)}; {noise.basis})."
        )
    )
    return Section(title="Verdicts", blocks=tuple(blocks))


def _load(body: Recommendation, charts: Mapping[str, ChartView]) -> Section:
    blocks: list[Block] = []
    if body.saturation is not None:
        found = body.saturation
        blocks.append(Paragraph(text=phrases.saturation_sentence(found)))
        estimates = (
            ("saturation (requests in flight)", labels.spread(found.concurrency)),
            ("plateau (tokens/s)", labels.spread(found.plateau_tokens_per_s)),
            ("a step at all", labels.spread(found.step_s, scale=1e-3, unit="ms", digits=2)),
            (
                "a step, for each request in it",
                labels.spread(found.step_s_per_request, scale=1e-3, unit="ms", digits=2),
            ),
            ("cap (requests in a step)", "none" if found.cap is None else labels.spread(found.cap)),
        )
        origins = (
            found.concurrency,
            found.plateau_tokens_per_s,
            found.step_s,
            found.step_s_per_request,
            found.cap,
        )
        blocks.append(
            Table(
                columns=("figure", "value", "from"),
                rows=tuple(
                    (name, value, labels.origin(origin))
                    for (name, value), origin in zip(estimates, origins, strict=True)
                ),
            )
        )
    blocks.append(Picture(chart=charts["saturation"]))
    return Section(title="Load and saturation", blocks=tuple(blocks))


def _quality(body: Recommendation) -> Section:
    if not body.quality:
        text = "No configuration that changes outputs was compared with the baseline's answers."
        return Section(title="Quality", blocks=(Paragraph(text=text),))
    floor = body.goal.min_top1_agreement
    said = tuple(
        phrases.quality_sentence(item, phrases.technique_title(body, item.technique), floor)
        for item in body.quality
    )
    table = Table(
        columns=(
            "technique",
            "prompts",
            "same most likely token",
            "baseline against itself",
            "same until the first difference",
            "identical answers",
            "from",
        ),
        rows=tuple(_quality_row(item, body) for item in body.quality if item.figures is not None),
    )
    blocks: tuple[Block, ...] = (
        (Bullets(items=said), table) if table.rows else (Bullets(items=said),)
    )
    return Section(title="Quality", blocks=blocks)


def _quality_row(item: QualityVerdict, body: Recommendation) -> tuple[str, ...]:
    figures, itself = item.figures, item.tolerance
    title = phrases.technique_title(body, item.technique)
    if figures is None:
        return (title, *("" for _ in range(6)))
    return (
        title,
        str(figures.requests),
        labels.share(figures.top1_agreement),
        labels.NONE if itself is None else labels.share(itself.top1_agreement),
        labels.share(figures.greedy_agreement),
        labels.share(figures.identical),
        labels.origin(figures.top1_agreement or figures.greedy_agreement),
    )


def _confirmation(body: Recommendation) -> Section:
    found = body.confirmation
    if found is None:
        text = "The study did not compare its finalist with the baseline on held-out requests."
        return Section(title="Confirmation", blocks=(Paragraph(text=text),))
    title = phrases.title_of(body, found.config_hash)
    blocks: list[Block] = [Paragraph(text=phrases.confirmation_sentence(found, title))]
    if found.gain is not None:
        text = f"Order: {', '.join(found.order)}. Gain from {labels.origin(found.gain)}."
        blocks.append(Paragraph(text=text))
    return Section(title="Confirmation", blocks=tuple(blocks))


def _memory(body: Recommendation, charts: Mapping[str, ChartView]) -> Section:
    blocks: list[Block] = [Picture(chart=charts["memory"])]
    memory = body.memory
    known = [f"The KV cache takes {memory.kv_bytes_per_token:,} B per token"]
    if memory.kv_cache_tokens is not None:
        known.append(f"room for {memory.kv_cache_tokens:,} tokens")
    if memory.kv_free_tokens_at_peak is not None:
        known.append(f"{memory.kv_free_tokens_at_peak:,} of them free at the peak")
    blocks.append(Paragraph(text=f"{'; '.join(known)}."))
    if body.paging is not None:
        blocks.append(Paragraph(text=phrases.paging_sentence(body.paging)))
    return Section(title="Memory", blocks=tuple(blocks))


def _model(charts: Mapping[str, ChartView]) -> Section:
    return Section(
        title="The model behind the forecast",
        blocks=(Picture(chart=charts["roofline"]), Picture(chart=charts["predictions"])),
    )


def _baseline(body: Recommendation) -> Section:
    settings = phrases.settings_text(body.baseline.overrides())
    blocks: list[Block] = [Paragraph(text=f"Levers: {settings}.")]
    if body.baseline_notes:
        blocks.append(Paragraph(text="Of the command that was given, this is not kept:"))
        blocks.append(Bullets(items=body.baseline_notes))
    return Section(title="Baseline", blocks=tuple(blocks))


def _provenance(found: RecommendationView) -> Section:
    body = found.body
    device, engine = body.device, body.engine
    rows = [
        ("recommendation", found.id),
        ("hash of the bundle", found.hash),
        *((f"configuration {item.rank}", item.config_hash) for item in body.ranked),
        ("study", body.study_id),
        ("workload digest", body.workload_digest),
        ("model digest", body.model_digest),
        ("engine", f"vLLM {engine.vllm_version or body.engine_version}"),
        ("number format served", engine.dtype or UNSAID),
        ("quantized checkpoint", engine.checkpoint_digest or "none"),
        ("machine", body.machine),
        ("device", f"{device.name} ({device.kind}), {bytes_text(device.memory_bytes)}"),
        ("read bandwidth", _rated(device.bandwidth_bytes_per_s, 1e9, "GB/s")),
        *(
            (f"matrix rate, {dtype}", _rated(rate, 1e9, "GFLOP/s"))
            for dtype, rate in sorted(device.matrix_rate_flops_per_s.items())
        ),
        ("requests measured", f"{body.requests_measured:,}"),
        ("mean prompt", _tokens(body.mean_prompt_tokens)),
        ("mean output", _tokens(body.mean_output_tokens)),
    ]
    return Section(title="Provenance", blocks=(Table(columns=("what", "value"), rows=tuple(rows)),))


def _rated(rate: Estimate, scale: float, unit: str) -> str:
    return f"{labels.spread(rate, scale=scale, unit=unit)}, {labels.origin(rate)}"


def _tokens(mean: float | None) -> str:
    return labels.NONE if mean is None else f"{mean:,.1f} tokens"


def _reviews(found: RecommendationView) -> Section:
    if not found.reviews:
        return Section(title="Reviews", blocks=(Paragraph(text="Nobody has reviewed this yet."),))
    table = Table(
        columns=("when", "who", "decision", "configuration", "comment"),
        rows=tuple(
            (
                f"{item.at:%Y-%m-%d %H:%M %Z}",
                item.user,
                item.decision.replace("_", " "),
                item.config_hash[:SHORT_HASH],
                item.comment,
            )
            for item in found.reviews
        ),
    )
    return Section(title="Reviews", blocks=(table,))
