"""Which languages a sample of the texts is written in."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from advisor.traffic.facts import Facts, Hashes
from advisor.traffic.text import last_words
from advisor.traffic.trace import Request

UNDETERMINED = "undetermined"
SAMPLE = 1_000
# Below this many letters, or below this probability, the identifier guesses.
_LETTERS = 24
_SURE = 0.7
# Characters: more do not make it surer, and take as much longer.
_READ = 300
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))


@cache
def _identifier() -> LanguageIdentifier:
    """The offline model (py3langid), loaded when a text is first read: that takes a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_of(text: str) -> str:
    """Code of the language ("en"), or "undetermined" for short and doubtful texts."""
    head = text[:_READ]
    if sum(letter.isalpha() for letter in head) < _LETTERS:
        return UNDETERMINED
    found, probability = _identifier().classify(head)
    return str(found) if probability >= _SURE else UNDETERMINED


class LanguageSample:
    """Languages of at most 1,000 texts, chosen by the hash of their requests.

    The choice depends on the requests alone: not on their order, not on how they were cut into
    parts. Of the chosen texts the first 300 characters are held until their language is asked for.
    """

    def __init__(self, language: Callable[[str], str] = language_of, size: int = SAMPLE) -> None:
        self._language = language
        self._size = size
        self._keys = np.empty(0, dtype=np.uint64)
        self._heads: list[str] = []
        self._code = np.empty(0)

    def add(self, requests: Sequence[Request], facts: Facts) -> None:
        """The next part, with its columns."""
        texts = np.flatnonzero(facts.has_text)
        keys = _keys(facts)[texts]
        if len(self._keys) >= self._size:
            lower = keys < self._keys[-1]
            texts, keys = texts[lower], keys[lower]
        lowest = np.argsort(keys, kind="stable")[: self._size]
        heads = [last_words(requests[place])[:_READ] for place in texts[lowest]]
        joined = np.concatenate([self._keys, keys[lowest]])
        kept = np.argsort(joined, kind="stable")[: self._size]
        self._keys = joined[kept]
        self._code = np.concatenate([self._code, facts.code[texts[lowest]]])[kept]
        heads = [*self._heads, *heads]
        self._heads = [heads[at] for at in kept]

    @property
    def read(self) -> int:
        """How many texts are read."""
        return len(self._heads)

    @property
    def languages(self) -> dict[str, int]:
        """Texts by language, the most frequent first."""
        counts = Counter(self._language(head) for head in self._heads)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def code(self) -> int:
        """How many of the texts are mostly code."""
        return int((self._code > 0.5).sum())  # noqa: PLR2004 -- "mostly"


def _keys(facts: Facts) -> Hashes:
    """A hash of every request: equal texts at different times have different ones."""
    times = np.nan_to_num(facts.arrival_s, nan=-1.0).view(np.uint64)
    mixed = (facts.content ^ (times * _ODD[0])) * _ODD[1]
    mixed ^= mixed >> np.uint64(31)
    found: Hashes = mixed * _ODD[0]
    return found
