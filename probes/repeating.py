"""Something done again and again in a thread while a block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(look: Callable[[], None], *, period_s: float, name: str) -> Iterator[None]:
    """Call `look` every `period_s` seconds, for the first time after one; none runs at the end."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(period_s):
            look()

    thread = threading.Thread(target=keep, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
