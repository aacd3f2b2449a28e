"""Starting an engine: what is refused before, and what a start leaves behind as facts."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import EngineFailed, InvalidInput
from advisor.serving import FunctionalSettings, Levers, ServingConfig
from advisor.states import FailureKind
from probes.vllm.flags import ValueRule
from probes.vllm.server import StartProgress, start_engine
from tests.fakes.engines import planted_plan

pytestmark = pytest.mark.processes
SMALL = ServingConfig(functional=FunctionalSettings(max_model_len=512, kv_cache_space_gib=1))


@pytest.mark.parametrize(
    "levers, words",
    [
        (
            Levers(enable_chunked_prefill=False, max_num_batched_tokens=256),
            r"max_num_batched_tokens \(256\).*max_model_len \(512\).*raise",
        ),
        (Levers(max_num_batched_tokens=8, max_num_seqs=16), r"\(8\) is below max_num_seqs \(16\)"),
        (Levers(block_size=40), "multiple of 16"),
    ],
)
def test_a_pair_that_excludes_each_other_is_refused_and_nothing_starts(
    tmp_path: Path, levers: Levers, words: str
) -> None:
    """The reason and the remedy, at once: there is no log, because there was no process."""
    plan = planted_plan(tmp_path, {}, replace(SMALL, levers=levers))

    with pytest.raises(EngineFailed, match=words) as failure:
        start_engine(plan)
    assert failure.value.kind == FailureKind.INCOMPATIBLE_SETTINGS
    assert not plan.log_path.exists()


def test_a_value_that_this_version_lacks_is_refused_and_nothing_starts(tmp_path: Path) -> None:
    """What the engine's own dump says of the flag."""
    plan = planted_plan(tmp_path, {}, replace(SMALL, levers=Levers(dtype="float16")))
    schema = replace(
        plan.engine.schema,
        values={"--dtype": ValueRule(kind="str", choices=("auto",))},
    )

    with pytest.raises(InvalidInput, match=r"--dtype: .*float16.*only auto"):
        start_engine(replace(plan, engine=replace(plan.engine, schema=schema)))
    assert not plan.log_path.exists()


def test_a_start_is_told_by_phase_and_its_parts_add_up(tmp_path: Path) -> None:
    """Whoever waits sees how far it is; the facts keep how long each part took."""
    seen: list[StartProgress] = []
    plan = planted_plan(tmp_path, {"start_s": 1.0}, SMALL)
    with start_engine(plan, on_progress=seen.append) as engine:
        facts = engine.facts
    phases = [name for name, _ in facts.start_phases]

    assert facts.start_s is not None
    assert sum(seconds for _, seconds in facts.start_phases) == pytest.approx(facts.start_s)
    assert phases[0] == "launching"
    assert "loading" in phases
    assert set(phases) <= {progress.phase for progress in seen}
