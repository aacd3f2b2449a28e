"""Studies, reviews and deployments: what may follow what."""

import pytest

from advisor.states import DeploymentState, RecommendationState, StudyState
from api.client import ApiProblem, Client, RecommendationView, StudyView
from tests.api.world import World

pytestmark = pytest.mark.postgres


@pytest.fixture
def submitter(world: World) -> Client:
    """Who starts the study."""
    return world.client(world.key_of("submitter"))


@pytest.fixture
def proposed(world: World, submitter: Client) -> RecommendationView:
    """A recommendation of the submitter's study, not reviewed yet."""
    _, study = world.study(submitter)
    row = world.recommended(study.id)
    return submitter.recommendation(str(row.id))


def approve(client: Client, found: RecommendationView, config_hash: str | None = None) -> None:
    """Approve the best or the given configuration."""
    client.review(
        found.id,
        decision="approve",
        config_hash=config_hash or found.body.best.config_hash,
        recommendation_hash=found.hash,
    )


def refused(attempt: object) -> ApiProblem:
    """The problem that `attempt` (a call without arguments) ends with."""
    assert callable(attempt)
    with pytest.raises(ApiProblem) as caught:
        attempt()
    return caught.value


def test_a_study_waits_with_a_plan(world: World, submitter: Client) -> None:
    """A new study is queued and shows trials and seconds before any engine starts."""
    workload, study = world.study(submitter)

    assert (study.state, study.workload_id) == (StudyState.QUEUED, workload.id)
    assert study.plan
    assert all(plan.expected_s > 0 for plan in study.plan)
    assert submitter.study(study.id) == study


def test_starting_a_study_twice_under_one_key_starts_one(world: World, submitter: Client) -> None:
    """The second answer is the first one; another body under the key is a conflict."""
    workload, study = world.study(submitter)

    def start(name: str) -> StudyView:
        return submitter.create_study(
            name=name,
            workload_id=workload.id,
            target_id=study.target_id,
            idempotency_key="once",
        )

    first = start("a")
    second = start("a")
    other = refused(lambda: start("b"))

    assert first == second
    assert other.status == 409
    assert len(submitter.studies().items) == 2


def test_a_waiting_study_is_cancelled_at_once(world: World, submitter: Client) -> None:
    """Nobody works on it, so nobody has to be asked."""
    _, study = world.study(submitter)

    assert submitter.cancel_study(study.id).state is StudyState.CANCELLED


def test_an_unknown_field_or_technique_is_refused(world: World, submitter: Client) -> None:
    """422 names the field; an unknown technique lists the known ones."""
    workload, study = world.study(submitter)
    body = {"name": "x", "workload_id": workload.id, "target_id": study.target_id, "goals": 1}

    field = refused(lambda: submitter._wire.send("POST", "/v1/studies", json=body))
    technique = refused(
        lambda: submitter.create_study(
            name="x", workload_id=workload.id, target_id=study.target_id, techniques=["warp"]
        )
    )

    assert field.status == 422
    assert [item.field for item in field.problem.errors] == ["goals"]
    assert technique.status == 422
    assert "ngram_speculation" in technique.problem.accepted


def test_the_recommendation_arrives_as_it_was_stored(
    world: World, proposed: RecommendationView
) -> None:
    """Value -> row -> route -> client is the identity, hash included."""
    assert proposed.body.hash == proposed.hash
    assert proposed.state is RecommendationState.PROPOSED


def test_a_submitter_may_not_review(submitter: Client, proposed: RecommendationView) -> None:
    """The role is too low."""
    assert refused(lambda: approve(submitter, proposed)).status == 403


def test_the_author_may_not_approve(world: World) -> None:
    """An admin who started the study needs somebody else, unless the setting allows it."""
    admin = world.client()
    _, study = world.study(admin)
    found = admin.recommendation(str(world.recommended(study.id).id))

    problem = refused(lambda: approve(admin, found))

    assert problem.status == 403
    assert "another reviewer" in str(problem.remedy)


def test_single_user_mode_lets_the_author_approve(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The setting is the only way around the rule."""
    alone = world.rebuilt(tmp_path_factory.mktemp("data"), single_user=True)
    admin = alone.client()
    _, study = alone.study(admin)
    found = admin.recommendation(str(alone.recommended(study.id).id))

    approve(admin, found)

    assert admin.recommendation(found.id).state is RecommendationState.APPROVED


def test_a_review_names_bundle_and_configuration(
    world: World, proposed: RecommendationView
) -> None:
    """Another bundle's hash is a conflict, an unranked configuration is invalid."""
    reviewer = world.client(world.key_of("reviewer"))
    best = proposed.body.best.config_hash

    def decide(bundle: str, config: str) -> object:
        return reviewer.review(
            proposed.id, decision="approve", config_hash=config, recommendation_hash=bundle
        )

    assert refused(lambda: decide("0" * 64, best)).status == 409
    assert refused(lambda: decide(proposed.hash, "0" * 64)).status == 422


def test_only_the_approved_configuration_deploys(
    world: World, proposed: RecommendationView
) -> None:
    """Before approval, and for another configuration after it, deploying is refused."""
    operator = world.client(world.key_of("operator"))
    best, second = (item.config_hash for item in proposed.body.ranked)

    def deploy(config_hash: str) -> object:
        return operator.deploy(name="chat", recommendation_id=proposed.id, config_hash=config_hash)

    before = refused(lambda: deploy(best))
    approve(world.client(world.key_of("reviewer")), proposed)
    other = refused(lambda: deploy(second))
    made = operator.deploy(name="chat", recommendation_id=proposed.id, config_hash=best)

    assert (before.status, other.status) == (403, 403)
    assert "approved" in str(before.remedy)
    assert made.state is DeploymentState.PENDING
    assert made.url.endswith("/serve/chat/v1")
    assert made.config.hash == best


def test_reviewing_is_not_operating(world: World, proposed: RecommendationView) -> None:
    """A reviewer may approve but not deploy."""
    reviewer = world.client(world.key_of("reviewer"))
    approve(reviewer, proposed)

    problem = refused(
        lambda: reviewer.deploy(
            name="chat",
            recommendation_id=proposed.id,
            config_hash=proposed.body.best.config_hash,
        )
    )

    assert problem.status == 403


def test_deploying_again_replaces_and_stopping_is_asked_once(
    world: World, proposed: RecommendationView
) -> None:
    """The next generation is wanted, the earlier one is to stop; stopping twice is stopping."""
    operator = world.client(world.key_of("operator"))
    approve(world.client(world.key_of("reviewer")), proposed)
    wanted = {
        "name": "chat",
        "recommendation_id": proposed.id,
        "config_hash": proposed.body.best.config_hash,
    }
    first = operator.deploy(**wanted)

    second = operator.deploy(**wanted)
    operator.stop_deployment(second.id)

    assert (first.generation, second.generation) == (1, 2)
    assert operator.deployment(first.id).wanted == "stopped"
    assert operator.stop_deployment(second.id).wanted == "stopped"
    assert len(operator.deployments().items) == 2


def test_a_rejected_recommendation_stays_rejected(
    world: World, proposed: RecommendationView
) -> None:
    """The state machine has no way back; the reviews are kept."""
    reviewer = world.client(world.key_of("reviewer"))
    decided = reviewer.review(
        proposed.id,
        decision="reject",
        config_hash=proposed.body.best.config_hash,
        recommendation_hash=proposed.hash,
        comment="not this one",
    )

    assert refused(lambda: approve(reviewer, proposed)).status == 409
    assert decided.state is RecommendationState.REJECTED
    assert [item.comment for item in decided.reviews] == ["not this one"]
