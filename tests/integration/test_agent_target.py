"""A whole agent process: targets are inspected, or refused with a reason."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.estimate import Source
from advisor.states import TargetState
from db.session import Sessions
from db.tokenizer import chat_tokenizer
from tests.fakes.agent_site import AgentSite, write_model

pytestmark = [pytest.mark.postgres, pytest.mark.processes]


@pytest.fixture
def site(tmp_path: Path, database_url: str, sessions: Sessions) -> Iterator[AgentSite]:
    """A host with a planted engine; its agents are ended afterwards."""
    place = AgentSite(folder=tmp_path, database_url=database_url, sessions=sessions)
    yield place
    place.close()


def test_targets_end_ready_with_their_facts_or_failed_with_a_reason(site: AgentSite) -> None:
    """Each trouble of a model folder has its own words; the good one is measured and tokenised."""
    outside = write_model(site.folder / "elsewhere" / "tiny")
    models = site.folder / "models"
    (models / "link").symlink_to(outside)
    strange = write_model(models / "strange")
    (strange / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"]}))
    bare = write_model(models / "bare")
    (bare / "tokenizer.json").unlink()
    leaking = write_model(models / "leaking")
    (leaking / "model.safetensors").unlink()
    (leaking / "model.safetensors").symlink_to(outside / "model.safetensors")
    site.start()
    good = site.target()
    bad = {
        "MODEL_ROOTS": site.target(str(outside)),
        "roots must be listed": site.target(str(models / "link")),
        "MambaForCausalLM": site.target(str(strange)),
        "tokenizer.json": site.target(str(bare)),
        "leads out": site.target(str(leaking)),
        "neither an absolute path": site.target("org/model"),
    }
    every = [good, *bad.values()]
    site.wait(
        "all are inspected",
        lambda: all(site.target_row(t).state != TargetState.PENDING for t in every),
    )
    ready = site.target_row(good)
    errors = {words: site.target_row(target).error for words, target in bad.items()}

    assert ready.state == TargetState.READY, ready.error
    assert ready.shape is not None
    assert ready.shape.num_layers == 2
    assert ready.device is not None
    assert ready.device.bandwidth_bytes_per_s.source is Source.MEASURED
    assert chat_tokenizer(ready).tokenizer_digest == ready.tokenizer_digest
    for words, error in errors.items():
        assert words.replace("roots must be listed", "must be listed in") in str(error)
