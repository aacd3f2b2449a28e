"""What each failure of an engine means, what helps, whether to try again, what to remember.

A failure is remembered where the next start would meet it again: it follows from the engine, the
kind of device, the model and the configuration alone. What the state of the machine may change
(memory that others hold, a port, a hang) is not (docs/adr/0024).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from advisor.canonical import canonical_bytes
from advisor.serving import LEVER_NAMES, ServingConfig
from advisor.states import FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What is known of one kind of failure.

    `starts` is how often the same configuration may be started in all, with `wait_s` before each
    further start. `lasting`: a later start of the same configuration fails again. `remembered`: it
    is kept beyond the study, so that no later study starts it at all.
    """

    means: str
    remedy: str
    starts: int = 1
    wait_s: float = 0.0
    lasting: bool = False
    remembered: bool = False


TREATMENTS: Mapping[FailureKind, Treatment] = {
    FailureKind.OUT_OF_MEMORY: Treatment(
        means="the engine ran out of memory, the log does not say in which phase",
        remedy="lower gpu_memory_utilization or max_num_seqs, or end what else uses the memory",
    ),
    FailureKind.OUT_OF_MEMORY_LOADING: Treatment(
        means="the weights do not fit into the memory that is there",
        remedy="use quantized weights, a higher tensor_parallel_size or a smaller model;"
        " a higher gpu_memory_utilization does not help",
    ),
    FailureKind.OUT_OF_MEMORY_PROFILING: Treatment(
        means="the weights fit; the largest batch, which the engine tries at its start, does not",
        remedy="lower max_num_batched_tokens or max_num_seqs, then gpu_memory_utilization",
    ),
    FailureKind.OUT_OF_MEMORY_SERVING: Treatment(
        means="memory ended while requests were served: nothing was left beside cache and weights",
        remedy="lower gpu_memory_utilization (on a CPU kv_cache_space_gib) or max_num_seqs",
    ),
    FailureKind.DEVICE_HELD: Treatment(
        means="another process holds the device's memory; the configuration is not to blame",
        remedy="end that process, or lower gpu_memory_utilization to what is free",
        starts=3,
        wait_s=10.0,
    ),
    FailureKind.UNSUPPORTED_QUANTIZATION: Treatment(
        means="this engine cannot serve these quantized weights on this device",
        remedy="leave quantization out, or choose a scheme that the device's kernels support",
        lasting=True,
        remembered=True,
    ),
    FailureKind.INCOMPATIBLE_SETTINGS: Treatment(
        means="two settings exclude each other in this engine",
        remedy="change one of the two settings that the detail names",
        lasting=True,
        remembered=True,
    ),
    FailureKind.FAILED_BEFORE: Treatment(
        means="it failed before on this engine, device class and model, and was not started again",
        remedy="change the setting that the detail names, or clear it: rooftune engine forget",
        lasting=True,
    ),
    FailureKind.HUNG: Treatment(
        means="the engine had requests and did nothing: no step, no token",
        remedy="read the end of its log; async_scheduling off and enforce_eager are worth a try",
        starts=2,
    ),
    FailureKind.NO_KV_MEMORY: Treatment(
        means="what the weights leave is too little for the key-value cache",
        remedy="lower max_model_len to what the traffic needs, raise gpu_memory_utilization (on a"
        " CPU kv_cache_space_gib), or use quantized weights",
        lasting=True,
    ),
    FailureKind.MODEL_NOT_FOUND: Treatment(
        means="the model's files are not where the target says",
        remedy="check the target's model path and ROOFTUNE_MODEL_ROOTS",
        lasting=True,
    ),
    FailureKind.BAD_WEIGHTS: Treatment(
        means="the weight files are damaged or belong to another model",
        remedy="copy the model again and compare its digest",
        lasting=True,
    ),
    FailureKind.INVALID_SETTING: Treatment(
        means="the engine refuses a setting",
        remedy="change the setting that the detail names",
        lasting=True,
        remembered=True,
    ),
    FailureKind.PORT_IN_USE: Treatment(
        means="another process listens on the port",
        remedy="end that process, or leave the port out so that a free one is taken",
        starts=2,
        wait_s=1.0,
    ),
    FailureKind.WRONG_SERVER: Treatment(
        means="what answers on the port is not the engine that was started",
        remedy="end the left-over server on that port",
        starts=2,
        wait_s=1.0,
    ),
    FailureKind.START_TIMEOUT: Treatment(
        means="the engine was still starting at the limit",
        remedy="raise ROOFTUNE_START_TIMEOUT_S if its log still moved, else read its end",
    ),
    FailureKind.EXITED: Treatment(
        means="the engine ended during its start and gave no reason that is known here",
        remedy="read the end of its log",
    ),
    FailureKind.DIED: Treatment(
        means="the engine ended while it served",
        remedy="read the end of its log; a signal 9 that nobody sent is the kernel's, for memory",
        starts=2,
    ),
    FailureKind.LOAD_FAILED: Treatment(
        means="the engine runs, the load could not be measured",
        remedy="read the detail; more than a tenth of failed requests is no measurement",
        starts=2,
    ),
    FailureKind.QUANTIZER_MISSING: Treatment(
        means="no quantizer is installed on this host",
        remedy="make quantizer installs it",
    ),
    FailureKind.QUANTIZATION_FAILED: Treatment(
        means="the quantized checkpoint could not be made",
        remedy="read the detail; disk and memory of the host are its usual limits",
    ),
    FailureKind.AGENT_LOST: Treatment(
        means="the agent that ran it was lost; finished load points stand",
        remedy="nothing to do: the trial is started again by the next agent of this device class",
    ),
    FailureKind.CANCELLED: Treatment(
        means="it was cancelled", remedy="start the study again if that was a mistake"
    ),
}
LASTING = frozenset(kind for kind, treatment in TREATMENTS.items() if treatment.lasting)


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedFailure:
    """A failure on one engine, device class and model, met at `failed_at`.

    Without a `setting` it is that of the whole configuration `config_hash`. With `setting` and
    `setting_value` (canonical JSON) that value fails in every configuration. With `setting` and
    `bound` the setting worked at most up to the bound, in the configuration whose hash without the
    setting is `config_hash`.
    """

    kind: FailureKind
    detail: str
    failed_at: datetime
    config_hash: str | None = None
    setting: str | None = None
    setting_value: str | None = None
    bound: int | None = None

    @property
    def text(self) -> str:
        """What a trial that is left out says."""
        what = TREATMENTS[self.kind]
        return (
            f"not started: it failed on {self.failed_at:%Y-%m-%d} on this engine, device class and"
            f" model ({self.kind}: {self.detail}); {what.remedy}"
        )


def explained(kind: str, detail: str | None) -> str:
    """What a user reads: the detail's first line, then what helps, then the rest of it."""
    found, _, rest = (detail or "").partition("\n")
    treatment = TREATMENTS.get(FailureKind(kind)) if kind in set(FailureKind) else None
    if treatment is None:
        return detail or kind
    said = f"{found or treatment.means}; remedy: {treatment.remedy}"
    return f"{said}\n{rest}" if rest else said


def retries(kind: str, failed_starts: int) -> bool:
    """Whether the same configuration is started again after `failed_starts` starts that failed."""
    return failed_starts < TREATMENTS[FailureKind(kind)].starts


def lever_bound(config: ServingConfig, setting: str | None, bound: int | None) -> int | None:
    """The bound, if `setting` is a lever that `config` has above it or leaves to the engine.

    Functional settings (max_model_len) are the user's: they are told, never changed.
    """
    if setting not in LEVER_NAMES or bound is None or bound < 1:
        return None
    value = getattr(config.levers, setting)
    above = value is None or (isinstance(value, int) and value > bound)
    return bound if above else None


def to_remember(
    config: ServingConfig,
    kind: str,
    detail: str,
    *,
    setting: str | None,
    bound: int | None,
    now: datetime,
) -> RememberedFailure | None:
    """What to keep of this failure; None where another state of the machine could change it.

    A refusal that names no setting may have any cause and is not kept.

    Of the detail only its first line is kept: the rest quotes the engine's log.
    """
    vague = kind == FailureKind.INVALID_SETTING and setting is None
    if vague or not TREATMENTS[FailureKind(kind)].remembered:
        return None
    line = detail.partition("\n")[0]
    known = RememberedFailure(
        kind=FailureKind(kind), detail=line, failed_at=now, config_hash=config.hash
    )
    if lever_bound(config, setting, bound) is not None:
        return RememberedFailure(
            kind=known.kind,
            detail=line,
            failed_at=now,
            config_hash=_hash_without(config, str(setting)),
            setting=setting,
            bound=bound,
        )
    if known.kind is FailureKind.UNSUPPORTED_QUANTIZATION and setting in LEVER_NAMES:
        value = _value_text(config, str(setting))
        if value is not None:
            return RememberedFailure(
                kind=known.kind, detail=line, failed_at=now, setting=setting, setting_value=value
            )
    return known


def known_failure(
    config: ServingConfig, remembered: Iterable[RememberedFailure]
) -> RememberedFailure | None:
    """The failure that a start of `config` would meet again; None where none is known."""
    for failure in remembered:
        whole = failure.setting is None and failure.config_hash == config.hash
        value = failure.setting_value
        if whole or (value is not None and _value_text(config, str(failure.setting)) == value):
            return failure
    return None


def bounds_on(
    config: ServingConfig, remembered: Iterable[RememberedFailure]
) -> tuple[RememberedFailure, ...]:
    """The known bounds that `config` does not keep: its setting is to be lowered to each first."""
    return tuple(
        failure
        for failure in remembered
        if failure.setting in LEVER_NAMES
        and lever_bound(config, failure.setting, failure.bound) is not None
        and _hash_without(config, failure.setting) == failure.config_hash
    )


def _hash_without(config: ServingConfig, setting: str) -> str:
    return config.changed({setting: None}).hash


def _value_text(config: ServingConfig, setting: str) -> str | None:
    value = getattr(config.levers, setting, None)
    return None if value is None else canonical_bytes(value).decode()
