"""Replay and prefix sharing against the reference snippets (../shared/reference)."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from advisor.traffic.drafting.lookup import replay
from advisor.traffic.reading import read_trace
from advisor.traffic.summary import summarise
from tests.fakes.exact_prefix import sharing

UNLIMITED = 10**9


@pytest.fixture(scope="module")
def reference(shared: Path) -> dict[str, Callable[..., object]]:
    return runpy.run_path(str(shared / "reference" / "ref_snippets.py"), run_name="reference")


def test_replay_equals_the_reference_on_random_texts(
    reference: dict[str, Callable[..., object]],
) -> None:
    """Small alphabets, so that n-grams repeat; the reference equals the engine's own function."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        prompt = rng.integers(0, 5, rng.integers(1, 60)).tolist()
        output = rng.integers(0, 5, rng.integers(1, 40)).tolist()
        k = int(rng.integers(1, 6))
        found = replay(prompt, output, k=k)
        wanted = reference["replay"](prompt, output, 2, 4, k)

        assert isinstance(wanted, dict)
        assert wanted["decode_steps"] == found.decode_steps
        assert wanted["drafts"] == found.drafts
        assert wanted["draft_tokens"] == found.draft_tokens
        assert wanted["accepted"] == found.accepted
        assert wanted["per_pos"] == list(found.per_position)


def test_prefix_sharing_equals_the_reference_with_an_unlimited_cache(
    reference: dict[str, Callable[..., object]],
) -> None:
    """Prompts grown from each other by chance."""
    rng = np.random.default_rng(6)
    prompts = [rng.integers(0, 2, 30).tolist()]
    for _ in range(60):
        parent = prompts[int(rng.integers(len(prompts)))]
        cut = int(rng.integers(0, len(parent)))
        prompts.append([*parent[:cut], *rng.integers(0, 2, int(rng.integers(1, 40))).tolist()])
    found = sharing(prompts, 4)

    assert found is not None
    assert found.hit_share.value == pytest.approx(reference["prefix_hits"](prompts, 4, UNLIMITED))


def test_the_public_azure_trace_keeps_its_published_means(shared: Path) -> None:
    """19,366 conversation requests of one hour; means as computed from the file's own columns."""
    path = shared / "data" / "traffic" / "azure_2023" / "AzureLLMInferenceTrace_conv.csv"
    columns = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2))
    with path.open("rb") as stream:
        trace = read_trace(stream, filename=path.name)
    found = summarise(trace.requests, None, block_size=16)

    assert found.requests == len(columns) == 19_366
    assert found.overall.prompt_tokens is not None
    assert found.overall.output_tokens is not None
    assert found.overall.prompt_tokens.mean == pytest.approx(columns[:, 0].mean())
    assert found.overall.output_tokens.p95 == pytest.approx(np.percentile(columns[:, 1], 95))
    assert found.arrivals is not None
    assert 3400 < found.arrivals.span_s < 3700
