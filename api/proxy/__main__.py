"""Runs the proxy: `python -m api.proxy`. Loopback only."""

import logging

import uvicorn

from api.proxy.app import build
from api.proxy.endpoints import Directory
from api.proxy.listener import listen
from api.proxy.settings import ProxySettings
from db.session import open_sessions


def main() -> None:
    """Serve until told to stop; streams in flight get a short while to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the proxy logs each request itself
    settings = ProxySettings()
    directory = Directory(
        sessions=open_sessions(settings.database_url), key_cache_s=settings.proxy_key_cache_s
    )
    listener = listen("127.0.0.1", settings.proxy_port, silence_s=settings.proxy_client_silence_s)
    config = uvicorn.Config(
        build(settings, directory),
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
        server_header=False,
        loop="asyncio",
        http="h11",
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
