"""Lines on standard error that say what `make measure-checks` does now, and since when."""

import sys
import time
from collections.abc import Callable

Say = Callable[[str], None]


def teller(part: str, began_s: float) -> Say:
    """Says a line with the seconds since `began_s` (monotonic) and the part's name."""

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began_s:6.0f} s  {part:<12} {text}\n")
        sys.stderr.flush()

    return say
