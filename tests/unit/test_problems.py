"""Every error that a route can raise has a row in the table of problems."""

from collections.abc import Iterator

import advisor.errors
import api.errors
from advisor.errors import InvalidInput, NoUsableRows, RooftuneError, Unavailable, UnknownName
from api.errors import SHAPES, problem_of
from api.wire import ApiProblem

OURS = (advisor.errors.__name__, api.errors.__name__)


def leaves(kind: type[RooftuneError]) -> Iterator[type[RooftuneError]]:
    """The classes below `kind` that nothing derives from, defined in our error modules."""
    below = kind.__subclasses__()
    if not below:
        yield kind
    for item in below:
        yield from leaves(item)


def test_every_domain_error_has_a_status() -> None:
    """A new error without a row would be a 500."""
    unmapped = [
        item.__name__
        for item in leaves(RooftuneError)
        if item.__module__ in OURS and item not in SHAPES
    ]

    assert unmapped == []


def test_slugs_are_unique() -> None:
    """A problem type means one thing."""
    slugs = [shape.slug for shape in SHAPES.values()]

    assert len(slugs) == len(set(slugs))


def test_a_refused_file_names_columns() -> None:
    """Found and accepted columns are data, not only text."""
    problem = problem_of(NoUsableRows("no row", ["foo"], ["messages"]))

    assert (problem.status, problem.found, problem.accepted) == (422, ("foo",), ("messages",))


def test_an_invalid_field_is_named() -> None:
    """The field is data."""
    problem = problem_of(InvalidInput("goal.concurrency", "0 is below 1"))

    assert [item.field for item in problem.errors] == ["goal.concurrency"]


def test_an_unknown_name_lists_the_known_ones() -> None:
    """What would have been right is in the answer."""
    assert problem_of(UnknownName("technique", "x", ["y"])).accepted == ("y",)


def test_an_error_nobody_placed_is_our_fault() -> None:
    """It is a 500 that does not quote the message."""

    class Stray(RooftuneError):
        """Not in the table."""

    problem = problem_of(Stray("SECRETWORD"))

    assert problem.status == 500
    assert "SECRETWORD" not in problem.detail


def test_a_remedy_is_said_once() -> None:
    """In the field of its own, not in the detail too; and once by the client."""
    problem = problem_of(Unavailable("no device is registered", "wait for an agent"))

    assert (problem.detail, problem.remedy) == ("no device is registered", "wait for an agent")
    assert str(ApiProblem(problem)).count("wait for an agent") == 1
