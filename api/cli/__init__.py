"""The console command `rooftune`."""

from api.cli.root import main

__all__ = ["main"]
