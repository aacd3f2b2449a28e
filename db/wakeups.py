"""Durable wake-ups on procrastinate: a topic is a queue, a wake-up is a job that says "look again".

A job carries nothing: the rows are the truth, so a lost or doubled wake-up does no harm. A topic is
the device class whose agents should look. One of the agents that listen gets the job; each agent
also has a tick of its own every minute, which makes the whole level-triggered.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import ConnectorException, ProcrastinateException
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy import text
from sqlalchemy.orm import Session

from db.address import libpq

log = logging.getLogger(__name__)
TASK = "rooftune.wake"
TICK_TASK = "rooftune.tick"
TICK = "tick"
EVERY_MINUTE = "* * * * *"
RECONNECT_S = 1.0
MAX_QUEUE_NAME = 128
DEFER = text(
    "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW("
    ":topic, :task, 0, NULL, NULL, '{}'::jsonb, NULL)]::procrastinate_job_to_defer_v1[])"
)


def wake(session: Session, topic: str) -> None:
    """Ask whoever listens to `topic` to look again, once this transaction commits."""
    session.execute(DEFER, {"topic": topic[:MAX_QUEUE_NAME], "task": TASK})


class WakeupListener:
    """A procrastinate worker in a thread that turns jobs into calls.

    `name` is unique among live listeners and the same after a restart (it names the queue of the
    listener's own tick).
    """

    def __init__(self, url: str, topics: Sequence[str], *, name: str) -> None:
        self._url = libpq(url)
        self._topics = [topic[:MAX_QUEUE_NAME] for topic in topics]
        self._tick_queue = f"{TICK}:{name}"[:MAX_QUEUE_NAME]
        self._name = name
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self, on_wake: Callable[[str], None]) -> None:
        """Listen; `on_wake(topic)` runs in the listener's thread and must be quick.

        A job whose call raises is tried again, a few times, later.
        """
        self._thread = threading.Thread(
            target=self._run, args=(on_wake,), name="wakeups", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the worker, its connections and the thread."""
        self._stopping.set()
        loop, work = self._loop, self._work
        if loop is not None and work is not None and not loop.is_closed():
            loop.call_soon_threadsafe(work.cancel)
        if self._thread is not None:
            self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether the thread is gone (or never was)."""
        return self._thread is None or not self._thread.is_alive()

    def _run(self, on_wake: Callable[[str], None]) -> None:
        while not self._stopping.is_set():
            try:
                asyncio.run(self._listen(on_wake))
            except (ProcrastinateException, PoolTimeout, ConnectionError) as error:
                log.warning("wake-up listener reconnects: %s", type(error).__name__)
                self._stopping.wait(RECONNECT_S)

    async def _listen(self, on_wake: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        # The pool is ours and is open before anything can be cancelled: a pool that is cancelled
        # while it opens leaves tasks behind that do not end.
        pool = AsyncConnectionPool(
            self._url,
            min_size=1,
            max_size=4,
            open=False,
            check=AsyncConnectionPool.check_connection,
            kwargs={"connect_timeout": 10, "application_name": "rooftune wake-ups"},
        )
        async with pool:
            self._work = asyncio.create_task(self._serve(pool, on_wake))
            if self._stopping.is_set():  # stop came before there was a task to cancel
                self._work.cancel()
            try:
                await self._work
            except asyncio.CancelledError:
                if not self._stopping.is_set():
                    raise

    async def _serve(
        self, pool: AsyncConnectionPool[AsyncConnection], on_wake: Callable[[str], None]
    ) -> None:
        app = self._app(on_wake)
        async with app.open_async(pool):
            await self._adopt_stalled(app)
            await app.run_worker_async(
                queues=[*self._topics, self._tick_queue],
                name=self._name,
                install_signal_handlers=False,
                delete_jobs="always",
                shutdown_graceful_timeout=5.0,
            )

    @staticmethod
    async def _adopt_stalled(app: App) -> None:
        """Put jobs of killed workers back, so that no wake-up is lost with its worker."""
        for job in await app.job_manager.get_stalled_jobs():
            try:
                await app.job_manager.retry_job(job)
            except ConnectorException:
                log.info("another worker took a stalled job back first")

    def _app(self, on_wake: Callable[[str], None]) -> App:
        app = App(connector=PsycopgConnector())
        again = RetryStrategy(max_attempts=5, wait=1, exponential_wait=2)

        @app.task(name=TASK, retry=again, pass_context=True)
        async def woken(context: JobContext) -> None:
            on_wake(context.job.queue)

        @app.periodic(cron=EVERY_MINUTE, periodic_id=self._name[:MAX_QUEUE_NAME])
        @app.task(name=TICK_TASK, queue=self._tick_queue)
        async def ticked(timestamp: int) -> None:
            del timestamp
            on_wake(TICK)

        return app
