"""Who may do what: keys, roles and projects."""

import uuid
from collections.abc import Callable

import pytest

from advisor.errors import Unavailable
from api.client import ApiProblem, Client
from tests.api.world import TWO_REQUESTS, World

pytestmark = pytest.mark.postgres


def test_without_a_key_nothing_but_health_is_answered(world: World) -> None:
    """A request without a key gets 401 and is told how to authenticate."""
    keyless = Client("http://api.test", None, transport=world.client()._wire.http._transport)

    with pytest.raises(ApiProblem) as caught:
        keyless.workloads()

    assert caught.value.status == 401
    assert "Bearer" in str(caught.value.remedy)
    assert keyless.health().status == "ok"


def test_an_unknown_key_is_refused_and_not_repeated(world: World) -> None:
    """The answer to a wrong key says that it is wrong and does not echo it."""
    wrong = "rt_" + "0" * 12 + "_" + "x" * 43

    with pytest.raises(ApiProblem) as caught:
        world.client(wrong).whoami()

    assert caught.value.status == 401
    assert wrong not in str(caught.value)


def test_the_bootstrap_admin_is_known(world: World) -> None:
    """The key of the first admin belongs to an admin in one project."""
    me = world.client().whoami()

    assert (me.role, len(me.projects), me.single_user) == ("admin", 1, False)


@pytest.mark.parametrize(
    "role,allowed",
    [
        ("viewer", set[str]()),
        ("submitter", {"upload"}),
        ("reviewer", {"upload"}),
        ("operator", {"upload"}),
        ("admin", {"upload", "audit", "user"}),
    ],
)
def test_a_role_includes_the_ones_below_and_no_more(
    world: World, role: str, allowed: set[str]
) -> None:
    """Each role may do what its row says; everything else is 403 with a remedy."""
    client = world.client(world.key_of(role))
    tried: dict[str, Callable[[], object]] = {
        "upload": lambda: client.upload_workload(TWO_REQUESTS, name="two"),
        "audit": client.audit,
        "user": lambda: client.create_user("somebody", "viewer"),
    }
    statuses = {name: _status(attempt) for name, attempt in tried.items()}

    assert statuses == {name: 200 if name in allowed else 403 for name in tried}


def _status(attempt: Callable[[], object]) -> int:
    try:
        attempt()
    except ApiProblem as problem:
        return problem.status
    return 200


def test_projects_do_not_see_each_other(world: World) -> None:
    """Another project's workload is not found and not listed."""
    admin = world.client()
    other = admin.create_project("other")
    mine = world.client(world.key_of("submitter")).upload_workload(TWO_REQUESTS, name="two")
    stranger = world.client(world.key_of("submitter", project=uuid.UUID(other.id)))

    with pytest.raises(ApiProblem) as caught:
        stranger.workload(mine.id)

    assert caught.value.status == 404
    assert stranger.workloads().items == ()


def test_a_caller_in_two_projects_names_the_one_it_means(world: World) -> None:
    """Creating needs one project: X-Project names it, an unknown one is not found."""
    other = world.client().create_project("other")

    with pytest.raises(ApiProblem) as several:
        world.client().upload_workload(TWO_REQUESTS, name="two")
    with pytest.raises(ApiProblem) as unknown:
        world.client(project=str(uuid.uuid4())).workloads()
    world.client(project=other.id).upload_workload(TWO_REQUESTS, name="two")

    assert (several.value.status, unknown.value.status) == (422, 404)
    assert len(world.client(project=other.id).workloads().items) == 1
    assert len(world.client(project=str(world.project_id)).workloads().items) == 0


def test_a_revoked_key_is_refused_at_once(world: World) -> None:
    """Revoking empties the cache of verified keys."""
    admin = world.client()
    user = admin.create_user("reader", "viewer")
    made = admin.create_key(user.id, "laptop")
    reader = world.client(made.plaintext)
    assert reader.whoami().name == "reader"

    admin.revoke_key(made.key.id)

    with pytest.raises(ApiProblem) as caught:
        reader.whoami()
    assert caught.value.status == 401


def test_what_was_done_is_in_the_audit(world: World) -> None:
    """Creating a user leaves a row that names the actor; the key's text is nowhere in it."""
    admin = world.client()
    user = admin.create_user("reader", "viewer")
    made = admin.create_key(user.id, "laptop")

    rows = admin.audit().items

    assert any(
        row.noun == "user" and row.noun_id == user.id and row.actor == "admin" for row in rows
    )
    assert made.plaintext not in str(rows)


def test_a_service_that_is_away_is_unavailable() -> None:
    """The client says what to do when nothing answers."""
    with pytest.raises(Unavailable), Client("http://127.0.0.1:9", "key", timeout_s=1) as client:
        client.whoami()
