"""Reviews and deployments: only what was approved runs, under a name's newest generation."""

import pytest
from sqlalchemy.orm import Session

from advisor.errors import AlreadyExists, InvalidInput, NotAllowed, StateConflict
from advisor.states import DeploymentState
from db import deployments, identity, recommendations
from db.identity import Principal, Role
from db.recommendations import Decision, NewReview
from db.session import Sessions, transaction
from db.tables import DeploymentRow, RecommendationRow
from tests.fakes.rows import AGENT, House
from tests.fakes.values import BASELINE, DRAFTING, FULL_CONFIG, recommendation

pytestmark = pytest.mark.postgres


def proposed(session: Session, house: House) -> RecommendationRow:
    study = house.add_study()
    bundle = recommendation(str(study.id))
    return recommendations.create(session, study, bundle, now=house.now())


def decide(
    session: Session,
    house: House,
    row: RecommendationRow,
    *,
    by: Principal,
    decision: Decision = Decision.APPROVE,
    config_hash: str = DRAFTING.hash,
    single_user: bool = False,
) -> None:
    new = NewReview(
        decision=decision, config_hash=config_hash, recommendation_hash=row.hash, comment=""
    )
    recommendations.review(
        session, row.id, by.project_ids, new, reviewer=by, now=house.now(), single_user=single_user
    )


def deploy(
    session: Session, house: House, row: RecommendationRow, name: str = "prod"
) -> DeploymentRow:
    return deployments.create(
        session,
        name=name,
        recommendation_id=row.id,
        config_hash=DRAFTING.hash,
        principal=house.admin,
        now=house.now(),
    )


def test_nobody_approves_their_own_study(sessions: Sessions) -> None:
    """By user, unless the service is a single user's; rejecting one's own is fine."""
    with transaction(sessions) as session:
        house = House(session)
        row = proposed(session, house)
        with pytest.raises(NotAllowed, match="own study"):
            decide(session, house, row, by=house.admin)
        decide(session, house, row, by=house.add_user("Grace", Role.REVIEWER))
        alone = proposed(session, house)
        decide(session, house, alone, by=house.admin, single_user=True)
        own = proposed(session, house)
        decide(session, house, own, by=house.admin, decision=Decision.REJECT)
        (review,) = recommendations.reviews(session, row.id)

    assert (row.state, alone.state, own.state) == ("approved", "approved", "rejected")
    assert (review.decision, review.config_hash) == ("approve", DRAFTING.hash)


def test_a_review_is_of_the_bundle_that_was_read(sessions: Sessions) -> None:
    """Another hash of the bundle, or a configuration that is not in it, is refused."""
    with transaction(sessions) as session:
        house = House(session)
        row = proposed(session, house)
        reviewer = house.add_user("Grace", Role.REVIEWER)
        stale = NewReview(
            decision=Decision.APPROVE,
            config_hash=DRAFTING.hash,
            recommendation_hash="0" * 64,
            comment="",
        )
        with pytest.raises(StateConflict, match="recommendation"):
            recommendations.review(
                session,
                row.id,
                None,
                stale,
                reviewer=reviewer,
                now=house.now(),
                single_user=False,
            )
        with pytest.raises(InvalidInput, match="config_hash"):
            decide(session, house, row, by=reviewer, config_hash=FULL_CONFIG.hash)

        assert row.state == "proposed"


def test_a_decided_recommendation_is_not_decided_again(sessions: Sessions) -> None:
    """Approved stays approved."""
    with transaction(sessions) as session:
        house = House(session)
        row = proposed(session, house)
        reviewer = house.add_user("Grace", Role.REVIEWER)
        decide(session, house, row, by=reviewer, decision=Decision.REQUEST_CHANGES)
        decide(session, house, row, by=reviewer)
        with pytest.raises(StateConflict):
            decide(session, house, row, by=reviewer, decision=Decision.REJECT)


def test_only_the_approved_configuration_deploys(sessions: Sessions) -> None:
    """Not before the review, not another one of the same bundle, not a rejected one."""
    with transaction(sessions) as session:
        house = House(session)
        row = proposed(session, house)
        with pytest.raises(NotAllowed, match="deploy"):
            deploy(session, house, row)
        decide(session, house, row, by=house.admin, single_user=True)
        with pytest.raises(NotAllowed, match="deploy"):
            recommendations.approved_config(session, row.id, None, BASELINE.hash)
        made = deploy(session, house, row)

    assert (made.config, made.config_hash) == (DRAFTING, DRAFTING.hash)
    assert (made.state, made.wanted, made.generation) == ("pending", "running", 1)


def approved(session: Session, house: House) -> RecommendationRow:
    row = proposed(session, house)
    decide(session, house, row, by=house.admin, single_user=True)
    return row


def serve(session: Session, house: House, row: DeploymentRow) -> None:
    deployments.assign(session, row, house.device.id)
    for state in (DeploymentState.STARTING, DeploymentState.SERVING):
        deployments.transition(session, row, state, actor=AGENT, now=house.now())
    deployments.set_endpoint(session, row, host="127.0.0.1", port=9000, served_model_name="t")


def test_a_name_moves_to_its_next_generation(sessions: Sessions) -> None:
    """The earlier one is to stop; until the newer serves, requests go to the earlier."""
    with transaction(sessions) as session:
        house = House(session)
        row = approved(session, house)
        first = deploy(session, house, row)
        serve(session, house, first)
        second = deploy(session, house, row)
        (before,) = deployments.newest_by_name(session)
        for state in (DeploymentState.DRAINING, DeploymentState.STOPPED):
            deployments.transition(session, first, state, actor=AGENT, now=house.now())
        (between,) = deployments.newest_by_name(session)
        serve(session, house, second)
        (after,) = deployments.newest_by_name(session)

    assert (first.generation, second.generation) == (1, 2)
    assert (first.wanted, second.wanted) == ("stopped", "running")
    assert [shown.generation for shown in (before, between, after)] == [1, 2, 2]
    assert (first.host, first.port) == (None, None)
    assert (second.host, second.port) == ("127.0.0.1", 9000)


def test_a_device_sees_its_own_and_the_free_ones_of_its_class(sessions: Sessions) -> None:
    """What is over is not seen again."""
    with transaction(sessions) as session:
        house = House(session)
        other = house.add_device("cpu1")
        row = approved(session, house)
        mine, theirs, free = (deploy(session, house, row, name) for name in ("a", "b", "c"))
        serve(session, house, mine)
        deployments.assign(session, theirs, other.id)
        seen = [found.name for found in deployments.for_device(session, house.device)]
        over = deployments.request_stop(
            session, free.id, None, actor=house.admin.actor, now=house.now()
        )
        left = [found.name for found in deployments.for_device(session, house.device)]
        asked = deployments.request_stop(
            session, mine.id, None, actor=house.admin.actor, now=house.now()
        )

    assert seen == ["a", "c"]
    assert (over.state, left) == ("stopped", ["a"])
    assert (asked.state, asked.wanted) == ("serving", "stopped")


def test_a_name_belongs_to_the_project_that_used_it_first(sessions: Sessions) -> None:
    """Another project's deployment does not take over its traffic."""
    with transaction(sessions) as session:
        house = House(session)
        row = approved(session, house)
        deploy(session, house, row)
        made = identity.create_project(
            session,
            name="other",
            member_id=house.admin.user_id,
            actor=house.admin.actor,
            now=house.now(),
        )
        study = house.add_study()
        study.project_id = made.id
        moved = recommendations.create(
            session, study, recommendation(str(study.id)), now=house.now()
        )
        principal = Principal(
            user_id=house.admin.user_id,
            name="admin",
            role=Role.ADMIN,
            project_ids=frozenset({made.id}),
        )
        decide(session, house, moved, by=principal, single_user=True)
        with pytest.raises(AlreadyExists, match="another project"):
            deployments.create(
                session,
                name="prod",
                recommendation_id=moved.id,
                config_hash=DRAFTING.hash,
                principal=principal,
                now=house.now(),
            )


@pytest.mark.parametrize("name", ["", "Prod", "a/b", "a b", "-a", "x" * 64])
def test_a_deployments_name_fits_into_an_address(sessions: Sessions, name: str) -> None:
    """It is part of a URL."""
    with transaction(sessions) as session:
        house = House(session)
        row = approved(session, house)
        with pytest.raises(InvalidInput, match="name"):
            deploy(session, house, row, name)
