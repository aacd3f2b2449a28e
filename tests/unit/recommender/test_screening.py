"""What is said of a technique before any engine is started."""

from dataclasses import replace

import pytest

from advisor.estimate import Estimate, Source
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.recommendation import VerdictKind
from advisor.recommender.screening import (
    Worth,
    forecast,
    loads_of,
    not_applicable,
    shape_of,
    trial_of,
)
from advisor.recommender.verdict import verdicts
from advisor.techniques import TECHNIQUES, Technique, draft_lengths
from tests.fakes.planted_world import DEVICE, DEVICE_INT8, World, begin, estimate, study, summary

[EIGHT_BIT] = [item for item in TECHNIQUES if item.cpu_features]
[SUBMISSION] = [item for item in TECHNIQUES if item.static_slots is not None]
DRAFTING = [item for item in TECHNIQUES if "speculative_config" in item.on]
OUTPUT_BOUND = 4


def bound(value: float, low: float, high: float) -> StudyEvidence:
    """A study whose upload promises so much of continuous over static batches."""
    gain = Estimate(value=value, low=low, high=high, source=Source.SIMULATED, basis="planted")
    return begin(traffic=replace(summary(), static_speedup=gain))


def test_a_technique_needs_one_of_its_processor_features() -> None:
    """Any of them will do; a GPU is not asked."""
    lacking = not_applicable(begin(device=DEVICE), EIGHT_BIT)
    amx = replace(DEVICE, cpu_features=("amx_int8",))
    cuda = replace(DEVICE, kind="cuda", cpu_features=())
    one = replace(EIGHT_BIT, cpu_features=("sve2",))

    assert lacking == "this processor has neither AVX-512 VNNI, AVX-VNNI nor AMX"
    assert not_applicable(begin(device=amx), EIGHT_BIT) is None
    assert not_applicable(begin(device=cuda), EIGHT_BIT) is None
    assert not_applicable(begin(), one) == "this processor has no sve2"


def test_a_technique_that_the_engine_would_refuse_is_not_tried() -> None:
    """Beside the baseline's own settings, with the engine's reason; alone it may be fine."""
    wider = replace(EIGHT_BIT, cpu_features=(), on={"max_num_seqs": 64}, off={"max_num_seqs": None})
    narrow = begin()
    narrow = replace(narrow, baseline=narrow.baseline.changed({"max_num_batched_tokens": 32}))

    assert not_applicable(begin(), wider) is None
    assert "max_num_batched_tokens (32) is below max_num_seqs (64)" in str(
        not_applicable(narrow, wider)
    )


def test_what_does_not_apply_is_neither_forecast_nor_tried() -> None:
    """Its verdict names what is missing."""
    evidence = study(World())
    found = forecast(evidence, EIGHT_BIT, 16)
    [verdict] = verdicts(evidence, (EIGHT_BIT,))

    assert (found.worth, found.predicted) == (Worth.NOT_APPLICABLE, None)
    assert trial_of(evidence, EIGHT_BIT) is None
    assert verdict.kind is VerdictKind.NOT_APPLICABLE
    assert "does not apply at 16 requests in flight because this processor has" in verdict.sentence


@pytest.mark.parametrize(
    "value,low,high,worth",
    [
        (1.5, 1.2, 1.8, Worth.TEST),
        (1.04, 0.9, 1.2, Worth.TEST),
        (1.02, 1.0, 1.04, Worth.SKIP),
        (0.7, 0.5, 0.9, Worth.SKIP),
        (0.8, 0.5, 1.2, Worth.UNKNOWN),
    ],
)
def test_the_interval_says_what_is_worth_testing(
    value: float, low: float, high: float, worth: Worth
) -> None:
    """A gain within reach, none within reach, or more likely a loss."""
    found = forecast(bound(value, low, high), SUBMISSION, OUTPUT_BOUND)

    assert found.worth is worth
    assert found.predicted is not None
    assert (found.reason is None) is (worth is Worth.TEST)


def test_gangs_are_forecast_by_the_upload_alone() -> None:
    """Simulated on its output lengths; at the number of slots, whatever the goal's load."""
    found = forecast(begin(), SUBMISSION, OUTPUT_BOUND)
    blind = forecast(begin(traffic=summary(lengths=False)), SUBMISSION, OUTPUT_BOUND)

    assert loads_of(begin(), SUBMISSION) == (OUTPUT_BOUND,)
    assert found.predicted is not None
    assert found.predicted.source is Source.SIMULATED
    assert (blind.worth, blind.predicted) == (Worth.UNKNOWN, None)
    assert "how long outputs are" in (blind.reason or "")


def test_each_draft_length_is_forecast_by_its_own_replay() -> None:
    """Two lengths, two predictions; a length that was not replayed has none."""
    found = [forecast(begin(), item, 1) for item in DRAFTING]
    traffic = replace(summary(), overall=replace(summary().overall, other_lookups=()))
    unreplayed = [forecast(begin(traffic=traffic), item, 1) for item in DRAFTING]
    values = [item.predicted.value for item in found if item.predicted is not None]
    shapes = [shape_of(summary(), length) for length in draft_lengths()]

    assert draft_lengths() == (4, 2)
    assert len(set(values)) == 2
    assert [shape.draft_length for shape in shapes if shape is not None] == [4, 2]
    assert [item.predicted is None for item in unreplayed] == [False, True]
    assert "drafts of 2 tokens" in (unreplayed[1].reason or "")


def test_8_bit_weights_are_forecast_where_their_units_were_measured() -> None:
    """A quarter to half of the bytes; without a rate for 8 bit the roofline cannot say."""
    rates = {name: rate for name, rate in DEVICE.matrix_rate_flops_per_s.items() if name != "int8"}
    unmeasured = replace(DEVICE_INT8, matrix_rate_flops_per_s=rates)
    found = forecast(begin(device=DEVICE_INT8), EIGHT_BIT, 1)
    unknown = forecast(begin(device=unmeasured), EIGHT_BIT, 1)

    assert found.worth is Worth.TEST
    assert found.predicted is not None
    assert 1.0 < found.predicted.value < 2.0
    assert unknown.worth is Worth.UNKNOWN
    assert "int8" in (unknown.reason or "")


def test_slow_8_bit_units_promise_nothing_at_large_batch() -> None:
    """Fewer bytes do not help where arithmetic binds."""
    slow = replace(
        DEVICE_INT8,
        matrix_rate_flops_per_s={
            **DEVICE.matrix_rate_flops_per_s,
            "int8": estimate(20e9, 19e9, 21e9),
        },
    )
    found = forecast(begin(device=slow), EIGHT_BIT, 16)

    assert found.worth is Worth.SKIP
    assert "at most -" in (found.reason or "")


def test_a_trial_is_found_by_name_or_by_its_levers() -> None:
    """Two names for one change share it; a submission's is the baseline's."""
    evidence = study(World())
    twin = replace(TECHNIQUES[1], key="twin")
    other = Technique(
        key="other",
        title="Other",
        on={"block_size": None},
        off={"block_size": 16},
        concurrencies=(),
        suits="",
        breaks="",
        why_helps="",
        why_not="",
    )
    found = [trial_of(evidence, item) for item in (TECHNIQUES[1], twin, SUBMISSION, other)]

    assert found[0] is found[1] is not None
    assert found[2] is evidence.trials[0]
    assert found[3] is None
