"""Runs the proxy: `python -m api.proxy`. Loopback only."""

import logging

import uvicorn

from api.proxy.app import build
from api.proxy.endpoints import Directory
from api.proxy.settings import ProxySettings
from db.session import open_sessions


def main() -> None:
    """Serve until told to stop; streams in flight get a short while to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = ProxySettings()
    directory = Directory(
        sessions=open_sessions(settings.database_url), key_cache_s=settings.proxy_key_cache_s
    )
    app = build(settings, directory)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=settings.proxy_port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
