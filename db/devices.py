"""Devices, and the leases that say who may use one now."""

import uuid
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from advisor.errors import NotFound, StateConflict
from advisor.hardware import DeviceFacts
from db.paging import Page, page_of
from db.tables import DeviceRow, LeaseRow


def register(
    session: Session, *, host: str, name: str, device_class: str, now: datetime
) -> DeviceRow:
    """The row of this device with its (free) lease: made, or found by host and name."""
    statement = insert(DeviceRow).values(
        id=uuid.uuid4(),
        host=host,
        name=name,
        device_class=device_class,
        created_at=now,
        agent_seen_at=now,
    )
    upsert = statement.on_conflict_do_update(
        index_elements=["host", "name"],
        set_={"device_class": device_class, "agent_seen_at": now},
    )
    row = session.scalars(
        upsert.returning(DeviceRow), execution_options={"populate_existing": True}
    ).one()
    lease_row = insert(LeaseRow).values(device_id=row.id, fencing_token=0)
    session.execute(lease_row.on_conflict_do_nothing())
    return row


def record_facts(
    session: Session,
    device_id: uuid.UUID,
    facts: DeviceFacts,
    *,
    boot_id: str | None,
    now: datetime,
) -> None:
    """Keep what a micro-benchmark measured in this boot of the machine."""
    row = one(session, device_id)
    row.facts = facts
    row.facts_boot_id = boot_id
    row.agent_seen_at = now


def seen(session: Session, device_id: uuid.UUID, now: datetime) -> None:
    """The agent of this device was here."""
    one(session, device_id).agent_seen_at = now


def one(session: Session, device_id: uuid.UUID) -> DeviceRow:
    """One device; raises `NotFound`."""
    row = session.get(DeviceRow, device_id)
    if row is None:
        raise NotFound("device", str(device_id))
    return row


def named(session: Session, *, host: str, name: str) -> DeviceRow | None:
    """The device of this name on this host, if an agent registered it before."""
    query = select(DeviceRow).where(DeviceRow.host == host, DeviceRow.name == name)
    return session.scalars(query).one_or_none()


def page(session: Session, *, limit: int, cursor: str | None) -> Page[DeviceRow]:
    """All devices, newest first."""
    keys = (DeviceRow.created_at, DeviceRow.id)
    return page_of(session, select(DeviceRow), keys, limit=limit, cursor=cursor)


def classes(session: Session) -> list[str]:
    """Device classes that some agent looks after."""
    query = select(DeviceRow.device_class).distinct().order_by(DeviceRow.device_class)
    return list(session.scalars(query))


def lease(session: Session, device_id: uuid.UUID) -> LeaseRow:
    """The lease of a device as it stands; `holder` is None while it is free."""
    row = session.get(LeaseRow, device_id, populate_existing=True)
    if row is None:
        raise NotFound("device", str(device_id))
    return row


def take_lease(
    session: Session,
    device_id: uuid.UUID,
    *,
    holder: str,
    purpose: str,
    now: datetime,
    ttl_s: float,
    replaces: str | None = None,
) -> int | None:
    """A fencing token greater than all before, or None while somebody else holds the device.

    `replaces` names a holder that the caller knows to be dead: its lease is not waited for.
    """
    row = _locked(session, device_id)
    held = row.holder is not None and row.expires_at is not None and row.expires_at > now
    if held and row.holder not in {holder, replaces}:
        return None
    row.holder = holder
    row.purpose = purpose
    row.fencing_token += 1
    row.heartbeat_at = now
    row.expires_at = now + timedelta(seconds=ttl_s)
    session.flush()
    return row.fencing_token


def renew_lease(
    session: Session, device_id: uuid.UUID, *, token: int, now: datetime, ttl_s: float
) -> bool:
    """Prolong a lease; False when the token is outdated or the lease was given back.

    A lease that ran out but that nobody took can be renewed: no other holder was there meanwhile.
    """
    row = _locked(session, device_id)
    if row.holder is None or row.fencing_token != token:
        return False
    row.heartbeat_at = now
    row.expires_at = now + timedelta(seconds=ttl_s)
    session.flush()
    return True


def release_lease(session: Session, device_id: uuid.UUID, *, token: int) -> bool:
    """Give a lease back; False when it is not this token's any more."""
    row = _locked(session, device_id)
    if row.holder is None or row.fencing_token != token:
        return False
    row.holder = row.purpose = row.expires_at = None
    session.flush()
    return True


def check_lease(session: Session, device_id: uuid.UUID, token: int) -> None:
    """Refuse an outdated fencing token, and keep the lease from changing until the commit."""
    query = select(LeaseRow).where(LeaseRow.device_id == device_id).with_for_update(read=True)
    row = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if row is None or row.holder is None or row.fencing_token != token:
        current = "free" if row is None or row.holder is None else f"at token {row.fencing_token}"
        raise StateConflict("device lease", current, f"used with token {token}")


def _locked(session: Session, device_id: uuid.UUID) -> LeaseRow:
    query = select(LeaseRow).where(LeaseRow.device_id == device_id).with_for_update()
    row = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if row is None:
        raise NotFound("device", str(device_id))
    return row
