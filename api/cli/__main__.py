"""``python -m api.cli`` is the console command where it is not installed."""

import sys

from api.cli.root import main

if __name__ == "__main__":
    sys.exit(main())
