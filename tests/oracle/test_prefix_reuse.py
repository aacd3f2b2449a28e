"""Prefix reuse against published ceilings, the handbook's figures and the reference replay."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from advisor.traffic.reuse.prefix import affinity_hit_share, che_hit_share
from tests.bench.reuse import CEILINGS, analysed
from tests.fakes.token_rows import reuse_of

BLOCK = 4


@pytest.mark.parametrize("name", CEILINGS)
def test_the_mooncake_ceilings_are_reproduced(shared: Path, name: str) -> None:
    """37.4 % and 65.1 % of the prompt tokens, from their README, within 0.1 points."""
    found, _, _ = analysed(name, shared / "data" / "traffic" / "mooncake_fast25")

    assert 100 * found.ceiling.value == pytest.approx(CEILINGS[name], abs=0.1)
    assert found.curve[-1].hit_share == pytest.approx(found.ceiling.value)
    assert found.origin == "block ids of the file"


def test_affinity_is_the_handbooks() -> None:
    """T8.4: four replicas, ten requests with one prefix."""
    assert affinity_hit_share(4, 10, affine=False) == pytest.approx(0.623, abs=5e-4)
    assert affinity_hit_share(4, 10, affine=True) == pytest.approx(0.9)


def test_ches_approximation_is_the_handbooks() -> None:
    """T8.2: 100 prefixes requested as 1/rank, a cache of 20."""
    rates = [1 / rank for rank in range(1, 101)]

    assert che_hit_share(rates, 20) == pytest.approx(0.568, abs=5e-4)
    assert che_hit_share(rates, 100) == 1


def test_simultaneous_prompts_share_at_once() -> None:
    """T8.1: four prompts that share 300 tokens, blocks of 128."""
    prompts = [[*range(300), *range(1000 * n, 1000 * n + 20)] for n in range(1, 5)]
    found = reuse_of(prompts, 128)

    assert found.hits == (0, 256, 256, 256)


def test_the_curve_is_the_references_replay_at_every_capacity(shared: Path) -> None:
    """Stack distances in one pass against an LRU of every size; prompts grow from each other."""
    reference: Callable[..., float] = runpy.run_path(
        str(shared / "reference" / "ref_snippets.py"), run_name="reference"
    )["prefix_hits"]
    rng = np.random.default_rng(8)
    prompts = [rng.integers(0, 2, 30).tolist()]
    for _ in range(80):
        parent = prompts[int(rng.integers(len(prompts)))]
        cut = int(rng.integers(0, len(parent)))
        prompts.append([*parent[:cut], *rng.integers(0, 2, int(rng.integers(1, 40))).tolist()])
    found = reuse_of(prompts, BLOCK).reuse

    assert found is not None
    assert len(found.curve) > 10
    for point in found.curve:
        assert point.hit_share == pytest.approx(reference(prompts, BLOCK, point.capacity_blocks))
