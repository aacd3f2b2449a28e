"""A study that starts from the user's own command, and what else a study is told."""

import pytest

from advisor.goal import Goal
from advisor.recommender.evidence import StudyOptions
from advisor.serving import FunctionalSettings, Levers
from api.client import ApiProblem, Client, StudyView
from tests.api.world import TWO_REQUESTS, World

pytestmark = pytest.mark.postgres
COMMAND = (
    "HF_TOKEN=hf_secret vllm serve acme/chat --max-num-seqs 8 --dtype float32"
    " --api-key sk-secret --made-up secret"
)


def started(world: World, client: Client, command: str) -> StudyView:
    """A study of a small upload that starts from `command`."""
    workload = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")
    target = world.ready_target(client)
    return client.create_study(
        name="study",
        workload_id=workload.id,
        target_id=target.id,
        baseline_command=command,
        goal=Goal(min_top1_agreement=0.8),
        ladder_top=64,
        confirm=False,
    )


def test_a_study_starts_from_the_users_command(world: World) -> None:
    """Levers of the command, functional settings of the target, notes on the rest."""
    client = world.client()

    made = started(world, client, COMMAND)

    assert made.baseline.levers == Levers(max_num_seqs=8, dtype="float32")
    assert made.baseline.functional == FunctionalSettings()
    assert made.goal.min_top1_agreement == 0.8
    assert (made.options.ladder_top, made.options.confirm) == (64, False)
    assert [note.partition(" ")[0] for note in made.options.baseline_notes] == [
        *("the", "the", "--api-key", "--made-up")
    ]
    assert client.study(made.id) == made


def test_no_secret_of_a_command_is_kept(world: World) -> None:
    """Neither in the study, nor in its events, nor in the audit."""
    client = world.client()
    made = started(world, client, COMMAND)
    client.cancel_study(made.id)
    told = (client.study(made.id), list(client.study_events(made.id)), client.audit())

    assert "secret" not in repr(told)
    assert "--api-key=<text>" in str(made.options.baseline_command)


def test_a_command_that_contradicts_the_target_is_refused(world: World) -> None:
    """Both values are named, and nothing is queued."""
    client = world.client()

    with pytest.raises(
        ApiProblem, match="4096 in the command and not set in the target"
    ) as refused:
        started(world, client, "vllm serve demo --max-model-len 4096")

    assert refused.value.status == 422
    assert client.studies().items == ()


def test_a_command_that_cannot_be_read_names_the_flag(world: World) -> None:
    """With the remedy, without the value."""
    client = world.client()

    with pytest.raises(ApiProblem, match="--max-num-seqs") as refused:
        started(world, client, "vllm serve demo --max-num-seqs secret")

    assert refused.value.problem.errors[0].field == "--max-num-seqs"
    assert "secret" not in str(refused.value.problem)


def test_a_study_has_one_baseline(world: World) -> None:
    """Levers and a command at once are two answers to one question."""
    client = world.client()
    workload, study = world.study(client)

    with pytest.raises(ApiProblem, match="not both"):
        client.create_study(
            name="two",
            workload_id=workload.id,
            target_id=study.target_id,
            baseline=Levers(max_num_seqs=8),
            baseline_command="vllm serve demo",
        )


def test_levers_of_every_kind_pass_the_wire(world: World) -> None:
    """What the client sends of a baseline is what the study has."""
    client = world.client()
    workload, study = world.study(client)
    levers = Levers(kv_cache_dtype="fp8", enable_chunked_prefill=False, gpu_memory_utilization=0.5)
    made = client.create_study(
        name="two", workload_id=workload.id, target_id=study.target_id, baseline=levers
    )

    assert made.baseline.levers == levers
    assert study.options == StudyOptions()
