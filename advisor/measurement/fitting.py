"""Which requests of a load fit the engine's context, and what is lost without the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.figures import Fit
from advisor.traffic.statistics.profile import fit_lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Places of the requests that fit and of those that do not, in order (case T-18).

    `fit` counts the requests whose prompt length is known; a request of unknown length is sent,
    and the engine has the last word on it. The shares are of what does not fit.
    """

    fitting: tuple[int, ...]
    not_fitting: tuple[int, ...]
    unknown: int
    fit: Fit

    @property
    def requests_share(self) -> float:
        """Share of the requests of known length that do not fit."""
        return 1 - self.fit.fitting / self.fit.requests if self.fit.requests else 0.0

    @property
    def prompt_tokens_share(self) -> float:
        """Share of the known prompt tokens that stand in requests that do not fit."""
        tokens = self.fit.prompt_tokens
        return 1 - self.fit.prompt_tokens_fitting / tokens if tokens else 0.0

    @property
    def needed_max_model_len(self) -> int:
        """The limit under which all of known length would fit; 0 where none is known."""
        return self.fit.needed_max_model_len

    @property
    def told(self) -> str | None:
        """What to say with every figure of the load; None where all fit."""
        if not self.not_fitting:
            return None
        return (
            f"{self.requests_share:.1%} of the requests with {self.prompt_tokens_share:.1%} of the"
            f" prompt tokens do not fit max_model_len {self.fit.max_model_len} and were not sent"
            f" ({self.needed_max_model_len} would take all): the figures are of the rest only"
        )


def split_fitting(
    prompt_tokens: Sequence[int | None], wanted_tokens: Sequence[int], *, max_model_len: int
) -> Fitting:
    """Split requests by whether prompt and wanted output together stay within `max_model_len`."""
    if len(prompt_tokens) != len(wanted_tokens):
        raise InvalidInput("wanted_tokens", "one per request is needed")
    known = [place for place, tokens in enumerate(prompt_tokens) if tokens is not None]
    prompts = np.array([prompt_tokens[place] for place in known], dtype=np.int64)
    wanted = np.array([wanted_tokens[place] for place in known], dtype=np.int64)
    # Engines refuse to make no token at all (case T-19).
    needed = prompts + np.maximum(wanted, 1)
    fit = fit_lengths(prompts, needed, max_model_len)
    out = {place for place, length in zip(known, needed, strict=True) if length > max_model_len}
    return Fitting(
        fitting=tuple(place for place in range(len(prompt_tokens)) if place not in out),
        not_fitting=tuple(sorted(out)),
        unknown=len(prompt_tokens) - len(known),
        fit=fit,
    )
