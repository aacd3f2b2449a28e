"""What an engine failed at, over HTTP and on the command line's client."""

from datetime import UTC, datetime

import pytest

from advisor.failures import RememberedFailure
from advisor.states import FailureKind
from api.client import ApiProblem
from db import engine_failures, engines
from db.session import transaction
from tests.api.world import World
from tests.fakes.rows import DEVICE_CLASS

pytestmark = pytest.mark.postgres
BOUND = RememberedFailure(
    kind=FailureKind.INVALID_SETTING,
    detail="max_num_seqs too high for the state cache: at most 856",
    failed_at=datetime(2026, 11, 30, tzinfo=UTC),
    config_hash="c0",
    setting="max_num_seqs",
    bound=856,
)


def remembered(world: World) -> str:
    """The id of the engine, of which one failure is known."""
    with transaction(world.sessions) as session:
        engine = engines.newest(session)
        assert engine is not None
        place = engine_failures.place_of(engine, device_class=DEVICE_CLASS, model_digest="m0")
        engine_failures.remember(session, place, BOUND)
        return str(engine.id)


def test_failures_are_shown_and_forgotten(world: World) -> None:
    """The very value is read; after forgetting there is none."""
    engine_id = remembered(world)
    client = world.client()
    before = client.engine_failures(engine_id)
    client.forget_failures(engine_id)

    assert before == (BOUND,)
    assert client.engine_failures(engine_id) == ()


def test_only_who_operates_may_forget(world: World) -> None:
    """Anybody may look."""
    engine_id = remembered(world)
    viewer = world.client(world.key_of("viewer"))

    assert viewer.engine_failures(engine_id) == (BOUND,)
    with pytest.raises(ApiProblem, match="operator"):
        viewer.forget_failures(engine_id)
