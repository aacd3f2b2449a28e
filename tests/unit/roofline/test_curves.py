"""Interpolation of step tables, and what makes compiled code compile anew."""

from types import ModuleType

import numpy as np
import pytest

from advisor.roofline.step.compiled import fingerprint
from advisor.roofline.step.curves import across_each, along_each

GRID, OTHER = np.array([1.0, 2.0, 8.0]), np.array([0.0, 10.0])


def test_a_line_goes_through_its_points_and_on_beyond_them_never_below_0() -> None:
    """At a point, between two, beyond both ends, and where the last slope would fall below 0."""
    at = np.array([2.0, 5.0, 0.0, 14.0])
    assert along_each(GRID, np.array([1.0, 3.0, 6.0]), at) == pytest.approx([3.0, 4.5, 0.0, 9.0])
    assert along_each(GRID, np.array([3.0, 2.0, 1.0]), np.array([50.0])) == [0.0]


def test_a_plane_is_linear_along_both_axes() -> None:
    """A product of two lines is met exactly; an axis of one point does not matter."""
    x, y = np.array([1.5, 4.0, 20.0]), np.array([3.0, 10.0, 40.0])
    product = GRID[:, None] * (1 + OTHER[None, :])
    assert across_each((GRID, OTHER), product, (x, y)) == pytest.approx(x * (1 + y))
    assert across_each((GRID[:1], OTHER), product[:1], (x, y)) == pytest.approx(1 + y)
    assert across_each((GRID, OTHER[:1]), product[:, :1], (x, y)) == pytest.approx(x)


def test_another_constant_is_another_fingerprint() -> None:
    """What was compiled and kept before a change of what it calls is not used after it."""
    before, same, after = ModuleType("before"), ModuleType("same"), ModuleType("after")
    vars(before)["SEATS"] = vars(same)["SEATS"] = 1
    vars(after)["SEATS"] = 2
    assert fingerprint([before]) == fingerprint([same])
    assert fingerprint([before]) != fingerprint([after])
