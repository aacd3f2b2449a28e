"""Users, keys and projects."""

from datetime import timedelta

import pytest

from advisor.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from db import audit, identity
from db.identity import Role
from db.session import Sessions, transaction
from tests.fakes.rows import START, House

pytestmark = pytest.mark.postgres
LATER = START + timedelta(days=1)


def test_the_first_admin_is_made_once(sessions: Sessions) -> None:
    """A second bootstrap finds an admin and gives no key."""
    with transaction(sessions) as session:
        first = identity.bootstrap_admin(session, START)
    with transaction(sessions) as session:
        second = identity.bootstrap_admin(session, START)
        admin = identity.authenticate(session, str(first), START)

    assert second is None
    assert admin.role is Role.ADMIN
    assert len(admin.project_ids) == 1


def test_a_key_opens_what_its_user_may_see(sessions: Sessions) -> None:
    """The principal carries role and projects; only a hash of the secret is kept."""
    with transaction(sessions) as session:
        house = House(session)
        reviewer = house.add_user("Grace", Role.REVIEWER)
        (key,) = identity.keys(session, reviewer.user_id)
        made = identity.create_key(
            session,
            user_id=reviewer.user_id,
            label="second",
            actor=house.admin.actor,
            now=house.now(),
        )
        again = identity.authenticate(session, made.text, LATER)

    assert again.name == "Grace"
    assert again.role is Role.REVIEWER
    assert again.project_ids == {house.project_id}
    assert key.id == reviewer.key_id != again.key_id
    assert made.text.startswith(f"rt_{made.row.id}_")
    assert made.text.rpartition("_")[2] not in made.row.secret_hash
    assert made.row.secret_hash.startswith("$argon2id$")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text.replace("rt_", "rt_0", 1),
        lambda text: "rt_000000000000_" + text.split("_", 2)[2],
        lambda text: text + "\n",
        lambda _: "",
        lambda _: "rt__",
    ],
    ids=["secret", "id form", "id", "newline", "empty", "bare"],
)
def test_a_wrong_key_is_refused_without_a_hint(sessions: Sessions, spoil: object) -> None:
    """Secret, id or form: the refusal is the same."""
    assert callable(spoil)
    with transaction(sessions) as session:
        key = identity.bootstrap_admin(session, START)
        with pytest.raises(NotAllowed, match="unknown, expired or revoked"):
            identity.authenticate(session, spoil(str(key)), START)


def test_expired_and_revoked_keys_and_disabled_users_are_refused(sessions: Sessions) -> None:
    """A key works until its end, and not a moment longer."""
    with transaction(sessions) as session:
        house = House(session)
        user = house.add_user("Ada", Role.VIEWER)
        actor = house.admin.actor
        short, long = (
            identity.create_key(
                session,
                user_id=user.user_id,
                label="k",
                actor=actor,
                now=START,
                expires_at=START + timedelta(hours=hours),
            )
            for hours in (1, 100)
        )
        in_time = identity.authenticate(session, short.text, START + timedelta(minutes=59))
        with pytest.raises(NotAllowed):
            identity.authenticate(session, short.text, START + timedelta(hours=1))
        later = identity.authenticate(session, long.text, LATER)
        identity.revoke_key(session, long.row.id, actor=actor, now=LATER)
        with pytest.raises(NotAllowed):
            identity.authenticate(session, long.text, LATER)
        third = identity.create_key(
            session, user_id=user.user_id, label="k", actor=actor, now=START
        )
        identity.user(session, user.user_id).disabled_at = LATER
        with pytest.raises(NotAllowed):
            identity.authenticate(session, third.text, LATER)

    assert in_time.user_id == later.user_id == user.user_id


def test_a_key_that_ends_before_it_begins_is_refused(sessions: Sessions) -> None:
    """The end of a key lies in the future."""
    with transaction(sessions) as session:
        house = House(session)
        with pytest.raises(InvalidInput, match="past"):
            identity.create_key(
                session,
                user_id=house.admin.user_id,
                label="k",
                actor=house.admin.actor,
                now=LATER,
                expires_at=START,
            )


@pytest.mark.parametrize("higher, lower", [(a, b) for a in Role for b in Role])
def test_a_role_includes_itself_and_the_ones_below(higher: Role, lower: Role) -> None:
    """viewer < submitter < reviewer < operator < admin."""
    order = ["viewer", "submitter", "reviewer", "operator", "admin"]

    assert higher.includes(lower) == (order.index(higher.value) >= order.index(lower.value))


def test_a_name_belongs_to_one_user(sessions: Sessions) -> None:
    """A second one is refused with a domain error, not the driver's."""
    with transaction(sessions) as session:
        house = House(session)
        house.add_user("Ada", Role.VIEWER)
    with pytest.raises(AlreadyExists, match="users"), transaction(sessions) as session:
        identity.create_user(
            session,
            name="Ada",
            role=Role.ADMIN,
            project_ids=[],
            actor=house.admin.actor,
            now=START,
        )


def test_projects_are_seen_by_their_members_and_by_admins(sessions: Sessions) -> None:
    """A new project is no one's but its member's, and every admin's."""
    with transaction(sessions) as session:
        house = House(session)
        member = house.add_user("Ada", Role.OPERATOR)
        stranger = house.add_user("Bob", Role.OPERATOR)
        actor = house.admin.actor
        made = identity.create_project(
            session, name="second", member_id=member.user_id, actor=actor, now=house.now()
        )
        identity.add_member(
            session, user_id=member.user_id, project_id=made.id, actor=actor, now=house.now()
        )
        seen = {}
        for who in (member, stranger, house.admin):
            key = identity.create_key(
                session, user_id=who.user_id, label="k", actor=actor, now=house.now()
            )
            principal = identity.authenticate(session, key.text, house.now())
            seen[who.name] = {row.name for row in identity.projects(session, principal.project_ids)}

    assert seen == {
        "Ada": {"default", "second"},
        "Bob": {"default"},
        "admin": {"default", "second"},
    }


def test_every_change_of_a_user_is_in_the_audit_without_secrets(sessions: Sessions) -> None:
    """Who, what, when; never a key."""
    with transaction(sessions) as session:
        house = House(session)
        user = house.add_user("Ada", Role.VIEWER)
        assert user.key_id is not None
        identity.revoke_key(session, user.key_id, actor=house.admin.actor, now=house.now())
        rows = audit.page(session, frozenset(), limit=200, cursor=None).items
        done = {(row.actor, row.action, row.noun) for row in rows}

    assert {("admin", "create", "user"), ("admin", "revoke", "key")} <= done
    assert not any("rt_" in str(row.detail) for row in rows)


def test_unknown_users_and_keys_are_not_found(sessions: Sessions) -> None:
    """The error names the noun."""
    with transaction(sessions) as session:
        house = House(session)
        with pytest.raises(NotFound, match="key"):
            identity.revoke_key(session, "nokey", actor=house.admin.actor, now=START)
        with pytest.raises(NotFound, match="user"):
            identity.user(session, house.project_id)
