"""A kernel for scikit-learn whose input columns may share a length (Rasmussen, Williams, ch. 5).

Only the residual imports this module, when it fits a process: scikit-learn takes seconds to load.
"""

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel
from typing_extensions import override

from advisor.roofline.calibration.work import Floats

_ROOT5 = 5**0.5


class SharedLengths(Kernel):  # type: ignore[misc]
    """Matern 5/2 (`smooth` False) or RBF of the distance over one length per group of columns.

    `groups` is the index into `length` of each input column, as a tuple.
    """

    def __init__(
        self, length: Floats, length_bounds: Any, groups: tuple[int, ...], *, smooth: bool
    ) -> None:
        self.length = length
        self.length_bounds = length_bounds
        self.groups = groups
        self.smooth = smooth

    @property
    def hyperparameter_length(self) -> Any:
        """What scikit-learn optimises, in logarithms."""
        return Hyperparameter("length", "numeric", self.length_bounds, len(self.length))

    @override
    def __call__(self, X: Floats, Y: Floats | None = None, eval_gradient: bool = False) -> Any:
        scaled = self._squares(X, X if Y is None else Y) / np.square(self.length)[:, None, None]
        square = scaled.sum(axis=0)
        if self.smooth:
            found = np.exp(-square / 2)
            slope = found
        else:
            root = _ROOT5 * np.sqrt(square)
            fall = np.exp(-root)
            found = (1 + root + 5 / 3 * square) * fall
            slope = 5 / 3 * (1 + root) * fall
        if not eval_gradient:
            return found
        if self.hyperparameter_length.fixed:
            return found, np.empty((*found.shape, 0))
        return found, np.moveaxis(slope * scaled, 0, -1)

    def _squares(self, first: Floats, second: Floats) -> Floats:
        """Squared distances by group, shape ``[groups, n, m]``."""
        found = np.zeros((len(self.length), len(first), len(second)))
        for column, group in enumerate(self.groups):
            found[group] += np.square(first[:, column, None] - second[None, :, column])
        return found

    @override
    def diag(self, X: Floats) -> Floats:
        """One everywhere."""
        return np.ones(len(X))

    @override
    def is_stationary(self) -> bool:
        """Distances alone matter."""
        return True
