"""The simulator against the reference scheduler beside the checkout, step by step."""

from pathlib import Path

from tests.validate.simulator import mismatches

WORKLOADS = 100


def test_golden_traces_and_random_workloads_equal_the_reference_in_every_step(
    shared: Path,
) -> None:
    """Traces A to F of the real scheduler, and engines short of blocks with shared prefixes."""
    found = mismatches(shared, WORKLOADS, seed=1)
    assert found.different == []
    assert found.preemptions > WORKLOADS / 2
    assert found.hits > WORKLOADS / 2
