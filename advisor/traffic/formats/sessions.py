"""Whether the lengths of a session's rows hold the history or the new turn alone (case T-03)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.facts import Codes, Integers
from advisor.traffic.formats.options import CUMULATIVE, PER_TURN

# Enough for one row in ten to be a history cut short, or a turn written by another client.
_GROWING_SHARE = 0.9
_NESTING_SHARE = 0.5
_SHRINKING_SHARE = 0.5
_OVERRIDE = f'give session_lengths = "{PER_TURN}" if each row counts its new turn alone'


@dataclass(slots=True)
class Nesting:
    """How often the block ids of a session's row extend those of the row before.

    The last block of a prompt may be half full and then get another id: it does not count.
    """

    pairs: int = 0
    nested: int = 0
    _last: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, session: str, block_ids: Sequence[int]) -> None:
        """One row, in the order of the file."""
        earlier = self._last.get(session)
        later = tuple(block_ids)
        self._last[session] = later
        if not earlier:
            return
        kept = max(1, len(earlier) - 1)
        self.pairs += 1
        self.nested += later[:kept] == earlier[:kept] and len(later) >= len(earlier)

    @property
    def share(self) -> float | None:
        """Share of later rows that extend the one before; None without any."""
        return self.nested / self.pairs if self.pairs else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionReading:
    """How the lengths of sessions were read, why, and the lengths of the whole prompts.

    `reading` is "cumulative" or "per_turn"; `assumed` says that the file left it open.
    """

    reading: str
    reason: str
    assumed: bool
    prompt_tokens: Integers


def session_reading(
    session: Codes,
    prompt_tokens: Integers,
    output_tokens: Integers,
    *,
    nested: float | None = None,
    given: str | None = None,
) -> SessionReading | None:
    """The reading of a file's session lengths; None when no session has a second row.

    One element a row, in order of arrival: `session` is -1 for rows that belong to none and for
    rows with text, whose prompts are whole; counts are -1 where unknown. `nested` is
    `Nesting.share` of the file, `given` the reading that the user asked for.
    """
    earlier, later = _turns(session)
    if not len(later):
        return None
    if given == PER_TURN:
        whole, unknown = whole_prompts(session, prompt_tokens, output_tokens)
        reason = "as asked for: the turns before were added to each prompt"
        if unknown:
            reason += f" ({unknown:,} of their counts are not known and were left out)"
        return SessionReading(reading=PER_TURN, reason=reason, assumed=False, prompt_tokens=whole)
    reason, assumed = "as asked for", False
    if given != CUMULATIVE:
        reason, assumed = _evidence(prompt_tokens, output_tokens, earlier, later, nested=nested)
    return SessionReading(
        reading=CUMULATIVE, reason=reason, assumed=assumed, prompt_tokens=prompt_tokens
    )


def _turns(session: Codes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of consecutive rows of one session: the earlier and the later of each pair."""
    order = np.argsort(session, kind="stable")
    codes = session[order]
    same = (codes[1:] == codes[:-1]) & (codes[1:] >= 0)
    return order[:-1][same], order[1:][same]


def _evidence(
    prompt_tokens: Integers,
    output_tokens: Integers,
    earlier: NDArray[np.intp],
    later: NDArray[np.intp],
    *,
    nested: float | None,
) -> tuple[str, bool]:
    """What speaks for whole prompts, and whether it had to be assumed."""
    if nested is not None and nested >= _NESTING_SHARE:
        return (
            f"the block ids of {nested:.0%} of later turns extend those of the turn before",
            False,
        )
    known = (prompt_tokens[earlier] >= 0) & (prompt_tokens[later] >= 0)
    before, after = prompt_tokens[earlier[known]], prompt_tokens[later[known]]
    if not len(after):
        return f"no two lengths of one session are known: taken as whole prompts; {_OVERRIDE}", True
    grown = float(np.mean(after >= before + np.maximum(output_tokens[earlier[known]], 0)))
    if grown >= _GROWING_SHARE:
        return (
            f"{grown:.0%} of later turns are no shorter than the turn before with its answer",
            False,
        )
    shrunk = float(np.mean(after < before))
    reason = "the file does not say whether lengths of sessions hold the turns before"
    if shrunk >= _SHRINKING_SHARE:
        reason += f", and {shrunk:.0%} of later turns are shorter than the turn before"
    if nested is not None:
        reason += f", and block ids extend those of the turn before in only {nested:.0%} of them"
    return f"{reason}: taken as whole prompts; {_OVERRIDE}", True


def whole_prompts(
    session: Codes, prompt_tokens: Integers, output_tokens: Integers
) -> tuple[Integers, int]:
    """Prompts with the turns before added, and how many counts of those turns are unknown.

    A row's whole prompt is its own turn and, of the earlier rows of its session, turn and answer.
    """
    order = np.argsort(session, kind="stable")
    codes = session[order]
    turn = np.maximum(prompt_tokens[order], 0) + np.maximum(output_tokens[order], 0)
    before = np.cumsum(turn) - turn
    first = np.ones(len(codes), dtype=np.bool_)
    first[1:] = codes[1:] != codes[:-1]
    # Sums never fall, so that of a session's first row is the largest one up to its other rows.
    history = before - np.maximum.accumulate(np.where(first, before, 0))
    grows = (codes >= 0) & (prompt_tokens[order] >= 0)
    whole = prompt_tokens.copy()
    whole[order[grows]] += history[grows]
    earlier, _ = _turns(session)
    unknown = int(np.sum(prompt_tokens[earlier] < 0) + np.sum(output_tokens[earlier] < 0))
    return whole, unknown
