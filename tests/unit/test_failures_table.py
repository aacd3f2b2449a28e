"""What is known of each kind of failure: remedies, retries, and what is remembered."""

from datetime import UTC, datetime

import pytest

from advisor.failures import (
    LASTING,
    TREATMENTS,
    RememberedFailure,
    bounds_on,
    explained,
    known_failure,
    lever_bound,
    retries,
    to_remember,
)
from advisor.serving import FunctionalSettings, Levers, ServingConfig, WeightQuantization
from advisor.states import FailureKind

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLAIN = ServingConfig()
HYBRID = ServingConfig(levers=Levers(max_num_seqs=1024))
INT8 = ServingConfig(levers=Levers(quantization=WeightQuantization()))
# What another state of the machine may change: memory that others hold, ports, hangs, lost agents.
PASSING = {
    FailureKind.OUT_OF_MEMORY,
    FailureKind.OUT_OF_MEMORY_LOADING,
    FailureKind.OUT_OF_MEMORY_PROFILING,
    FailureKind.OUT_OF_MEMORY_SERVING,
    FailureKind.NO_KV_MEMORY,
    FailureKind.DEVICE_HELD,
    FailureKind.PORT_IN_USE,
    FailureKind.WRONG_SERVER,
    FailureKind.HUNG,
    FailureKind.START_TIMEOUT,
    FailureKind.DIED,
    FailureKind.EXITED,
    FailureKind.LOAD_FAILED,
    FailureKind.AGENT_LOST,
    FailureKind.CANCELLED,
}


def kept(
    config: ServingConfig,
    kind: FailureKind,
    *,
    setting: str | None = None,
    bound: int | None = None,
) -> RememberedFailure | None:
    """What is remembered of a failure with two lines of detail."""
    return to_remember(
        config, kind, "the reason\na log line", setting=setting, bound=bound, now=NOW
    )


def test_every_kind_has_a_meaning_and_a_remedy() -> None:
    """No user reads a kind without what to do about it."""

    assert set(TREATMENTS) == set(FailureKind)
    assert all(item.means and item.remedy for item in TREATMENTS.values())


@pytest.mark.parametrize("kind", list(FailureKind))
def test_only_what_no_state_of_the_machine_changes_is_remembered(kind: FailureKind) -> None:
    """A lasting failure is not started again; one that may pass is never remembered."""
    treatment = TREATMENTS[kind]
    remembered = kept(PLAIN, kind, setting="block_size")

    assert (remembered is not None) is treatment.remembered
    assert not (treatment.remembered and kind in PASSING)
    assert not treatment.remembered or kind in LASTING
    assert treatment.starts == 1 or not treatment.lasting


@pytest.mark.parametrize(
    "kind, starts",
    [
        (FailureKind.DIED, 2),
        (FailureKind.HUNG, 2),
        (FailureKind.PORT_IN_USE, 2),
        (FailureKind.DEVICE_HELD, 3),
        (FailureKind.NO_KV_MEMORY, 1),
        (FailureKind.INVALID_SETTING, 1),
    ],
)
def test_a_configuration_is_started_as_often_as_its_failure_may_pass(
    kind: FailureKind, starts: int
) -> None:
    """A dead engine once more, a held device twice more, a refusal never."""
    made = 1
    while retries(kind, made):
        made += 1

    assert made == starts


def test_a_failure_is_shown_with_its_remedy_before_the_log() -> None:
    """The first line is what a table of trials shows."""
    text = explained(FailureKind.PORT_IN_USE, "the port is taken (exit code 1)\nlast line")

    assert text.splitlines()[0].startswith("the port is taken (exit code 1); remedy: ")
    assert text.splitlines()[1:] == ["last line"]
    assert explained("a kind of later", "as it is") == "as it is"


def test_a_known_bound_lowers_every_configuration_that_breaks_it_and_no_other() -> None:
    """Case E-12: 856 is kept for pruning; the same model with 512 is left as it is."""
    failure = kept(HYBRID, FailureKind.INVALID_SETTING, setting="max_num_seqs", bound=856)
    assert failure is not None
    below = HYBRID.changed({"max_num_seqs": 512})
    other = HYBRID.changed({"block_size": 32})

    assert bounds_on(HYBRID, [failure]) == (failure,)
    assert bounds_on(PLAIN, [failure]) == (failure,)  # the engine's own default may be above
    assert bounds_on(below, [failure]) == ()
    assert bounds_on(other, [failure]) == ()
    assert bounds_on(HYBRID.changed({"max_num_seqs": failure.bound}), [failure]) == ()
    assert known_failure(HYBRID, [failure]) is None


def test_a_functional_setting_is_told_and_never_changed() -> None:
    """max_model_len is what the user's traffic needs."""
    config = ServingConfig(functional=FunctionalSettings(max_model_len=9999))

    assert lever_bound(config, "max_model_len", 8192) is None
    assert lever_bound(HYBRID, "max_num_seqs", 0) is None
    assert lever_bound(HYBRID, None, 8) is None
    assert lever_bound(HYBRID, "max_num_seqs", 8) == 8


def test_a_quantization_that_is_not_supported_fails_whatever_else_is_set() -> None:
    """The value is remembered, not the configuration it was met in; the log's lines are not."""
    failure = kept(INT8, FailureKind.UNSUPPORTED_QUANTIZATION, setting="quantization")
    assert failure is not None

    assert known_failure(INT8.changed({"max_num_seqs": 4}), [failure]) == failure
    assert known_failure(PLAIN, [failure]) is None
    assert failure.detail == "the reason"
    assert "2026-11-30" in failure.text
    assert TREATMENTS[FailureKind.UNSUPPORTED_QUANTIZATION].remedy in failure.text


def test_a_checkpoint_of_its_own_that_is_not_supported_is_one_configuration() -> None:
    """Without a lever for it nothing else can be said."""
    failure = kept(PLAIN, FailureKind.UNSUPPORTED_QUANTIZATION, setting="quantization")
    assert failure is not None

    assert known_failure(PLAIN, [failure]) == failure
    assert known_failure(HYBRID, [failure]) is None


def test_a_refusal_without_a_named_setting_is_not_remembered() -> None:
    """It may have any cause, a full disk among them."""

    assert kept(PLAIN, FailureKind.INVALID_SETTING) is None
    assert kept(PLAIN, FailureKind.INCOMPATIBLE_SETTINGS) is not None
