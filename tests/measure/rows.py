"""Rows of `build/measure.json` for what could not be measured."""

from collections.abc import Iterable

from tests.bench.figures import Figure, read_targets


def unmeasured(names: Iterable[str], reason: str) -> list[Figure]:
    """A figure without a value for each of these targets, with the reason."""
    targets = read_targets()
    return [
        Figure(
            name=name,
            value=None,
            unit=targets[name]["unit"],
            better=targets[name]["better"],
            detail=reason,
        )
        for name in names
    ]
