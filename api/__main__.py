"""Runs the API: ``python -m api``. Loopback only."""

import logging
import tempfile

import uvicorn

from api.app import build
from api.intake import spool_of
from api.settings import ApiSettings

STREAM_GRACE_S = 3


def main() -> None:
    """Serve until told to stop; event streams get a short while to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # each /readyz would be two lines
    settings = ApiSettings()
    # Uploads that are on their way in spool to nameless files here, not in the system's folder.
    tempfile.tempdir = str(spool_of(settings).absolute())
    uvicorn.run(
        build(settings),
        host="127.0.0.1",
        port=settings.api_port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=STREAM_GRACE_S,
        # Said, because uvicorn would take the load client's libraries where they are installed.
        loop="asyncio",
        http="h11",
    )


if __name__ == "__main__":
    main()
