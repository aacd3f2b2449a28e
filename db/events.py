"""Progress of nouns: appended in the transaction of the change, announced when it commits.

Readers resume from the last id that they saw, so ids of one noun must become visible in order:
whoever appends holds the noun's row lock (the queries that change a study take it first).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime

import psycopg
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from db.address import libpq
from db.identity_tables import EventRow

log = logging.getLogger(__name__)
CHANNEL = "rooftune_events"
RECONNECT_S = 1.0
STOP_POLL_S = 0.25
QUIET_S = 60.0


def append(
    session: Session,
    *,
    noun: str,
    noun_id: object,
    kind: str,
    body: Mapping[str, object],
    now: datetime,
) -> EventRow:
    """Add one event and announce it to `EventListener`s at the commit."""
    row = EventRow(at=now, noun=noun, noun_id=str(noun_id), kind=kind, body=dict(body))
    session.add(row)
    session.flush()
    notify = text("SELECT pg_notify(:channel, :payload)")
    session.execute(notify, {"channel": CHANNEL, "payload": f"{noun}:{noun_id}"})
    return row


def after(
    session: Session, noun: str, noun_id: object, last_id: int, *, limit: int = 500
) -> list[EventRow]:
    """Events of one noun with a greater id than `last_id`, in order."""
    query = select(EventRow).where(
        EventRow.noun == noun, EventRow.noun_id == str(noun_id), EventRow.id > last_id
    )
    return list(session.scalars(query.order_by(EventRow.id).limit(limit)))


class EventListener:
    """Calls back for every noun that has news, from a thread of its own.

    Announcements made while the connection is down are lost: readers also look once a second.
    """

    def __init__(self, url: str) -> None:
        self._url = libpq(url)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, on_event: Callable[[str, str], None]) -> None:
        """Listen; `on_event(noun, noun_id)` runs in the listener's thread and must be quick."""
        self._thread = threading.Thread(
            target=self._listen, args=(on_event,), name="event-listener", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and its connection."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _listen(self, on_event: Callable[[str, str], None]) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._relay(connection, on_event)
            except psycopg.OperationalError as error:
                log.warning("event listener reconnects: %s", type(error).__name__)
                self._stopping.wait(RECONNECT_S)

    def _relay(self, connection: psycopg.Connection, on_event: Callable[[str, str], None]) -> None:
        quiet_since = time.monotonic()
        while not self._stopping.is_set():
            for notice in connection.notifies(timeout=STOP_POLL_S, stop_after=1):
                noun, _, noun_id = notice.payload.partition(":")
                on_event(noun, noun_id)
                quiet_since = time.monotonic()
            if time.monotonic() - quiet_since > QUIET_S:
                connection.execute("SELECT 1")  # finds out whether the connection still lives
                quiet_since = time.monotonic()
