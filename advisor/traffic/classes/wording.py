"""Names and sentences for classes of requests, from their own figures."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.facts import KINDS, Codes, Facts
from advisor.traffic.figures import Quantiles, RequestClass
from advisor.traffic.statistics.lengths import quantiles_of
from advisor.traffic.trace import RequestKind

# Words for a median length in tokens, up to a limit (not included).
_PROMPTS = ((256, "short"), (2_048, "medium"), (16_384, "long"))
_ANSWERS = ((64, "short"), (512, "medium"))
# For words only: no count comes of it.
CHARS_A_TOKEN = 4
_MOST = 0.8
_SOME = 0.2
_OPENING = {
    RequestKind.CHAT: "that share one system prompt",
    RequestKind.COMPLETION: "that open alike",
    RequestKind.LENGTHS: "that share their first block",
}
_Part: TypeAlias = NDArray[np.int64] | slice
_NOUN = {RequestKind.CHAT: "chat", RequestKind.COMPLETION: "prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """What one class looks like."""

    requests: int
    prompts: Quantiles | None
    answers: Quantiles | None
    characters: Quantiles | None
    kind: RequestKind
    shared: bool
    properties: tuple[tuple[str, str], ...]  # word for the name ("" none), phrase for the sentence
    several_turns: bool

    @property
    def prompt_word(self) -> str | None:
        """Of its tokens, else of about as many as its characters make."""
        if self.prompts is not None:
            return _word(self.prompts.p50, _PROMPTS, "very-long")
        if self.characters is not None:
            return _word(self.characters.p50 / CHARS_A_TOKEN, _PROMPTS, "very-long")
        return None

    @property
    def answer_word(self) -> str | None:
        return None if self.answers is None else _word(self.answers.p50, _ANSWERS, "long")

    @property
    def name(self) -> str:
        """Length of the prompt and what the request is: "long-chat", "short-json"."""
        special = next((word for word, _ in self.properties if word), None)
        noun = special or _NOUN.get(self.kind) or "context"
        return f"{self.prompt_word}-{noun}" if self.prompt_word else noun

    @property
    def traits(self) -> tuple[str, ...]:
        """The parts of the sentence."""
        words = []
        if self.prompt_word is not None:
            size = self._prompt_size()
            words.append(f"{self.prompt_word.replace('-', ' ')} prompts (median {size})")
        if self.shared:
            opening = _OPENING[self.kind]
            words.append(f"{words.pop()} {opening}" if words else f"prompts {opening}")
        if self.answers is not None:
            words.append(f"{self.answer_word} answers (median {_rounded(self.answers.p50)} tokens)")
        words += [phrase for _, phrase in self.properties]
        if self.several_turns:
            words.append("several turns")
        return tuple(words)

    def _prompt_size(self) -> str:
        if self.prompts is not None:
            return f"{_rounded(self.prompts.p50)} tokens"
        return "" if self.characters is None else f"{_rounded(self.characters.p50)} characters"


def described(
    facts: Facts, codes: Codes, names: Sequence[str] | None, *, origin: str
) -> tuple[RequestClass, ...]:
    """The classes that `codes` number, in words; names are made from traits where none are given.

    Codes without a request give no class.
    """
    order = np.argsort(codes, kind="stable")
    numbers, starts = np.unique(codes[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(numbers) > 1 else [slice(None)] * len(numbers)
    found = [_class(facts, part) for part in parts]
    chosen = _unique(found) if names is None else [names[number] for number in numbers]
    return tuple(
        RequestClass(
            name=name,
            origin=origin,
            requests=item.requests,
            share=item.requests / len(facts),
            traits=item.traits,
            description=", ".join(item.traits) or "nothing is known of these requests",
            prompt_tokens=item.prompts,
            output_tokens=item.answers,
        )
        for name, item in zip(chosen, found, strict=True)
    )


def _class(facts: Facts, part: _Part) -> _Class:
    kinds = facts.kind[part]
    heads = facts.head[part]
    times = np.unique(heads[heads != 0], return_counts=True)[1]
    return _Class(
        requests=len(kinds),
        prompts=quantiles_of(facts.prompt_tokens[part]),
        answers=quantiles_of(facts.output_tokens[part]),
        characters=quantiles_of(facts.text_chars[part]),
        kind=KINDS[int(np.bincount(kinds, minlength=len(KINDS)).argmax())],
        shared=bool(len(times) and len(kinds) > 1 and times.max() >= _MOST * len(kinds)),
        properties=_properties(facts, part),
        several_turns=float((facts.turns[part] > 1).mean()) > 0.5,  # noqa: PLR2004 -- most
    )


def _properties(facts: Facts, part: _Part) -> tuple[tuple[str, str], ...]:
    shares = (
        ("vision", "images", facts.images[part] > 0),
        ("json", "JSON output", facts.structured[part] > 0),
        ("tools", "tools", facts.tools[part] > 0),
        ("code", "mostly code", facts.code[part] > 0.5),  # noqa: PLR2004 -- "mostly"
    )
    found = []
    for word, phrase, flags in shares:
        share = float(flags.mean())
        if share >= _MOST:
            found.append((word, phrase))
        elif share >= _SOME:
            found.append(("", f"some with {phrase}" if word != "code" else "some of it code"))
    return tuple(found)


def _unique(classes: Sequence[_Class]) -> list[str]:
    """A name for each class; where two would have one, lengths and then numbers tell them apart."""
    names = [item.name for item in classes]
    for tell_apart in (_by_answers, _by_longer):
        for name in [name for name, times in Counter(names).items() if times > 1]:
            places = [place for place, held in enumerate(names) if held == name]
            endings = tell_apart([classes[place] for place in places])
            for place, ending in zip(places, endings, strict=True):
                names[place] += ending
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def _by_answers(classes: Sequence[_Class]) -> list[str]:
    """By the words for their answers, where these differ."""
    words = [item.answer_word for item in classes]
    if len(set(words)) == 1:
        return [""] * len(words)
    return ["" if word is None else f"-{word}-answers" for word in words]


def _by_longer(classes: Sequence[_Class]) -> list[str]:
    """Of two, the one that is longer by more: in prompts or in answers."""
    one, other = classes[0], classes[-1]
    if len(classes) != 2:  # noqa: PLR2004 -- "longer" is said of two
        return [""] * len(classes)
    ratios = {
        noun: _ratio(first, second)
        for noun, first, second in (
            ("prompts", one.prompts, other.prompts),
            ("answers", one.answers, other.answers),
        )
    }
    noun = max(ratios, key=lambda name: abs(ratios[name]))
    if not ratios[noun]:
        return ["", ""]
    ending = f"-longer-{noun}"
    return ["", ending] if ratios[noun] > 0 else [ending, ""]


def _ratio(first: Quantiles | None, second: Quantiles | None) -> float:
    """Logarithm of the second median over the first; 0 where one is not known."""
    if first is None or second is None:
        return 0.0
    return math.log((second.p50 + 1) / (first.p50 + 1))


def _rounded(median: float) -> str:
    """Two digits are enough for people: "3,900"."""
    value = round(median)
    size = 10 ** max(0, len(str(value)) - 2)
    return f"{round(value / size) * size:,}"


def _word(value: float, limits: Sequence[tuple[int, str]], last: str) -> str:
    return next((word for limit, word in limits if value < limit), last)
