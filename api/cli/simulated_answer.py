"""What `rooftune simulate` found, its verdicts and its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.canonical import as_json as plain
from advisor.estimate import Estimate, Prediction
from advisor.roofline.speculation import DraftSchedule
from advisor.simulator.engine import EngineModel
from advisor.simulator.from_traffic import TrafficLoad
from advisor.simulator.predicted import Binding, Run
from advisor.simulator.replicas import Routing
from advisor.simulator.sharing import ClosedForm
from api.cli.answer import Exit
from api.cli.knobs import Knobs

ENDS = ("fast", "centre", "slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the load is put on the engines, and the goals that it must meet."""

    rate: float
    concurrency: int | None
    replicas: int
    routing: Routing
    seed: int
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that a simulation says. `runs` is empty where no engine starts.

    `rates` are the highest rates the engines serve, by end; None where they are not known. `drafts`
    are the draft lengths that pay by batch, `price` a million output tokens at this load and
    `currency` its unit; None where nobody knows.
    """

    engine: EngineModel
    traffic: TrafficLoad
    knobs: Knobs
    asked: Asked
    runs: Mapping[str, Run]
    binds: Binding | None
    predicted: Mapping[str, Prediction]
    rates: tuple[float | None, ...]
    form: ClosedForm | None
    drafts: DraftSchedule | None = None
    price: Estimate | None = None
    currency: str | None = None

    @property
    def offered_per_s(self) -> float | None:
        """Mean rate of arrivals; None of a closed loop or a single moment."""
        times = self.traffic.load.arrival_s
        span_s = float(times[-1] - times[0]) if len(times) else 0.0
        if self.asked.concurrency is not None or span_s <= 0:
            return None
        return (len(times) - 1) / span_s

    @property
    def keeps_up(self) -> bool | None:
        """Whether the engines serve that rate for ever; None where the ranges leave it open.

        A closed loop, and a load of which too little goes through, are no question of it: True.
        """
        offered, known = self.offered_per_s, [rate for rate in self.rates if rate is not None]
        if offered is None or len(known) < len(ENDS):
            return True
        if offered >= max(known):
            return False
        return True if offered < min(known) else None

    @property
    def met(self) -> Mapping[str, bool | None]:
        """Goals by figure: met, missed, or None where the interval holds the limit."""
        found: dict[str, bool | None] = {}
        for name, limit in self.asked.limits.items():
            said = self.predicted.get(name)
            if said is None or said.low <= limit < said.high:
                found[name] = None
            else:
                found[name] = said.high <= limit
        return found

    @property
    def ending(self) -> Exit:
        """0 ok; 1 it does not fit, keep up or meet a goal; 4 where the ranges leave it open."""
        verdicts = (*self.met.values(), self.keeps_up)
        if not self.runs or False in verdicts:
            return Exit.NEGATIVE
        return Exit.INCONCLUSIVE if None in verdicts or self.engine.assumed else Exit.OK

    def json(self) -> dict[str, object]:
        """As JSON values."""
        load, fit = self.traffic.load, self.engine.fit
        refused = int(self.runs["centre"].outcome.refused.sum()) if self.runs else None
        return {
            "requests": len(load),
            "left_out": dict(self.traffic.left_out),
            "prefix_sharing": self.traffic.sharing,
            "loop": "open" if self.asked.concurrency is None else "closed",
            "concurrency": self.asked.concurrency,
            "rate": self.asked.rate,
            "replicas": self.asked.replicas,
            "routing": self.asked.routing,
            "settings": plain(self.engine.centre.settings) if self.runs else None,
            "fit": {
                "verdict": str(fit.verdict),
                "text": fit.text,
                "binding": fit.binding,
                "missing_bytes": fit.missing_bytes,
                "changes": plain(fit.changes),
                "kv_bytes": plain(fit.budget.kv_bytes),
                "kv_tokens": plain(fit.budget.tokens),
            },
            "assumed": self.engine.assumed,
            "refused": refused,
            "predicted": {name: plain(said) for name, said in self.predicted.items()},
            "binds": None if self.binds is None else str(self.binds),
            "offered_per_s": self.offered_per_s,
            "highest_rate_per_s": dict(zip(ENDS, self.rates, strict=False)),
            "keeps_up": self.keeps_up if self.runs and None not in self.rates else None,
            "goals": dict(self.met),
            "closed_form": _form_json(self.form),
            "paying_drafts": None if self.drafts is None else self.drafts.settings(),
            "price_per_million_output_tokens": None if self.price is None else plain(self.price),
            "currency": self.currency,
            "not_modelled": list(self.engine.not_modelled),
            "notes": list(self.knobs.notes),
        }


def _form_json(form: ClosedForm | None) -> dict[str, object] | None:
    if form is None:
        return None
    sharing = form.sharing
    return {
        "load": sharing.load,
        "running": sharing.running if sharing.stable else None,
        "tpot_s": sharing.tpot_s if sharing.stable else None,
        "exact_enough": form.reason is None,
        "reason": form.reason,
    }
