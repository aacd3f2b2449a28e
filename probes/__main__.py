"""The agent process: ``python -m probes``. Settings come from the environment (README)."""

import logging
import signal
import sys
import threading
from types import FrameType

from pydantic import ValidationError

from advisor.errors import RooftuneError
from db.identity import utc_now
from db.session import close_sessions, open_sessions
from db.wakeups import WakeupListener
from probes.agent import Agent
from probes.registration import Registration
from probes.settings import AgentSettings, engine_environment

EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
LOG = logging.getLogger("probes")


def main() -> int:
    """Run until SIGTERM or SIGINT; 2 for wrong settings, 3 when engine or database is missing."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for chatty in ("httpx", "procrastinate"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        settings = AgentSettings()
    except ValidationError as error:
        for problem in error.errors(include_input=False, include_url=False):
            name = "ROOFTUNE_" + "_".join(str(part) for part in problem["loc"]).upper()
            LOG.exception("%s: %s", name, problem["msg"])
        return EXIT_USAGE
    stop, wake = threading.Event(), threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()
        wake.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        return serve(settings, stop, wake)
    except RooftuneError as error:
        LOG.error("the agent cannot run: %s", error)  # noqa: TRY400 - a known trouble
        return EXIT_UNAVAILABLE


def serve(settings: AgentSettings, stop: threading.Event, wake: threading.Event) -> int:
    """Register, listen, loop; everything is closed at the end."""
    sessions = open_sessions(settings.database_url, application="rooftune agent")
    try:
        place = Registration(
            settings, sessions, stop=stop, now=utc_now, base_env=engine_environment()
        ).workplace()
        listener = WakeupListener(
            settings.database_url,
            [place.device.device_class],
            name=f"{settings.host_name}/{settings.device_name}",
        )
        listener.start(lambda _topic: wake.set())
        LOG.info("agent of %s, class %s", place.device.name, place.device.device_class)
        try:
            Agent(place, wake).run()
        finally:
            listener.stop()
    finally:
        close_sessions(sessions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
