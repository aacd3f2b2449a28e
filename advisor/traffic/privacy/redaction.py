"""What is kept of an upload's text: redaction, and what each mode cannot support."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from advisor.canonical import Json
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.privacy.naming import name_spans, names
from advisor.traffic.privacy.personal import Span, is_secret, spans
from advisor.traffic.privacy.substitution import Substitutes
from advisor.traffic.trace import Privacy, Request

_NO_REPLAY = (
    "the users' own prompts cannot be replayed: what an engine is asked has the right lengths and"
    " times, but not the text"
)
_NO_QUALITY = "acceptance of drafts and answer quality cannot be measured on the users' prompts"
_NO_RECOUNT = (
    "lengths, prefix blocks and n-gram acceptance are as computed at the upload: other tokenizers,"
    " chat templates and block sizes cannot be applied any more"
)
_NAMES_LEFT = (
    "names and places in plain words may be left: the text is less delicate, not anonymous"
)
_SUBSTITUTED = (
    "values were replaced by others of the same form and length: token counts may differ a little"
    " from those of the users' own text"
)
_ANSWERS_REDACTED = (
    "answers were recorded before the text was redacted: what is measured against them is about"
    " redacted prompts"
)
_ONLY_COMPUTED = (
    "sharing of prefixes and n-gram acceptance are known only where they were computed with a"
    " target's tokenizer at the upload"
)
_NO_CONTENT = "classes by content, languages, duplicates and advice from text are not known"
# Conclusions that an upload of a mode cannot support, as sentences for people.
PRIVACY_LIMITS: Mapping[Privacy, tuple[str, ...]] = {
    Privacy.RAW: (),
    Privacy.REDACTED: (_NAMES_LEFT, _SUBSTITUTED, _ANSWERS_REDACTED),
    Privacy.HASHED: (_NO_REPLAY, _NO_QUALITY, _NO_RECOUNT),
    Privacy.LENGTHS: (_NO_REPLAY, _NO_QUALITY, _ONLY_COMPUTED, _NO_CONTENT),
}
_LONG_NUMBER = 1_000_000  # seven digits
# Figures that need the text, by their names in `TrafficSummary.unmeasurable`.
_OF_TEXT = ("prefix_sharing", "reuse", "lookup", "suffix", "duplicates")


def said_of(summary: TrafficSummary, privacy: Privacy) -> TrafficSummary:
    """The summary with what the mode cannot support among its reasons."""
    limits = PRIVACY_LIMITS[privacy]
    if not limits:
        return summary
    kept = f"the upload is kept as `{privacy.value}`"
    reasons = {
        name: f"{kept}: {why}" if name in _OF_TEXT else why
        for name, why in summary.unmeasurable.items()
    }
    return replace(summary, unmeasurable={**reasons, "privacy": f"{kept}: {'; '.join(limits)}"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """A way to write JSON."""

    separators: tuple[str, str]
    ensure_ascii: bool

    def written(self, value: Json) -> str:
        """The value as text."""
        return json.dumps(value, separators=self.separators, ensure_ascii=self.ensure_ascii)


# How a JSON text inside of a text may be written; another one is treated as plain text.
_STYLES: tuple[_Style, ...] = tuple(
    _Style(separators=separators, ensure_ascii=escaped)
    for separators in ((", ", ": "), (",", ":"))
    for escaped in (False, True)
)
_ESCAPE = re.compile(r"(\\(?:[bfnrt\"/\\]|u[0-9a-fA-F]{4}))")
_IDS = frozenset({"id", "tool_call_id", "call_id", "session_id", "conversation_id"})
_PEOPLE = frozenset(
    {"first_name", "last_name", "full_name", "given_name", "family_name", "customer_name"}
)
_LONGEST_KEPT, _MOST_KEPT = 20_000, 1024


class Redactor:
    """Replaces what names a person or opens a door by something of the same form and length.

    E-mail addresses, phone numbers, keys, passwords, credentials, cards, accounts, addresses of
    machines, numbers of seven digits and more, and names that the text itself marks as such
    (`privacy.personal`); ids of tool calls as well. One value has one substitute under one
    `secret`, so what requests share stays shared and what an answer copies from its prompt stays a
    copy. Other names and places in plain words are not found: this makes a sample less delicate,
    it does not make it anonymous.
    """

    def __init__(self, secret: bytes) -> None:
        self._substitutes = Substitutes(secret)
        # Conversations repeat their history and their system prompt in every turn.
        self._spans: dict[str, list[Span]] = {}

    def text(self, text: str) -> str:
        """One text by itself."""
        wanted = _names_in(text)
        return self._nested(text, wanted)

    def value(self, value: Json) -> Json:
        """A JSON value with substitutes in all its texts, names found in one taken from all."""
        return self._value(value, _names_in(value))

    def request(self, request: Request) -> Request:
        """A request with substitutes in all that is text; its ids become keyed hashes.

        Token ids of the run are text in another form: they are left out.
        """
        held = [_parsed(request.messages), _parsed(request.tools), _parsed(request.response_format)]
        plain = [request.prompt, request.response, request.label]
        wanted = _names_in([*held, *plain])
        messages, tools, response_format = (
            None if item is None else _written(self._value(item, wanted)) for item in held
        )
        prompt, response, label = (
            None if item is None else self._text(item, wanted) for item in plain
        )
        return replace(
            request,
            messages=messages,
            tools=tools,
            response_format=response_format,
            prompt=prompt,
            response=response,
            label=label,
            session=self.hashed(request.session),
            source_id=self.hashed(request.source_id),
            prompt_ids=None,
            output_ids=None,
        )

    def hashed(self, identifier: str | None) -> str | None:
        """A keyed hash in the place of an id."""
        return None if identifier is None else self._substitutes.hashed(identifier)

    def _value(self, value: Json, wanted: AbstractSet[str], *, numbers: bool = False) -> Json:
        """`numbers`: whole numbers as long as an account's are values as well."""
        if isinstance(value, str):
            return self._nested(value, wanted)
        if isinstance(value, list):
            return [self._value(item, wanted, numbers=numbers) for item in value]
        if isinstance(value, dict):
            return {
                self._text(name, frozenset()): self._named(name, value)
                or self._value(item, wanted, numbers=numbers)
                for name, item in value.items()
            }
        if numbers and isinstance(value, int) and abs(value) >= _LONG_NUMBER:
            return int(self._substitutes.number(str(value)))
        return value

    def _named(self, name: str, owner: Mapping[str, Json]) -> str | None:
        """The substitute of a member that is an id or names who speaks, None for all others."""
        item = owner[name]
        if not isinstance(item, str):
            return None
        if name in _IDS or is_secret(name):
            return self._substitutes.key(item)
        if name in _PEOPLE or (name == "name" and owner.get("role") == "user"):
            return self._substitutes.words(item)
        return None

    def _nested(self, text: str, wanted: AbstractSet[str]) -> str:
        """A text that may be JSON itself, as the arguments of a tool call are."""
        if text[:1] not in {"{", "["}:
            return self._text(text, wanted)
        held = _parsed_exactly(text)
        if held is not None:
            value, style = held
            return style.written(self._value(value, wanted, numbers=True))
        # A letter of an escape (the n of a line feed) is no part of the word behind it.
        return "".join(
            part if place % 2 else self._text(part, wanted)
            for place, part in enumerate(_ESCAPE.split(text))
        )

    def _text(self, text: str, wanted: AbstractSet[str]) -> str:
        found = self._found(text)
        if wanted:
            found = _with_names(text, found, name_spans(text, wanted))
        if not found:
            return text
        parts: list[str] = []
        at = 0
        for span in found:
            parts += (
                text[at : span.start],
                self._substitutes.of(span.kind, text[span.start : span.end]),
            )
            at = span.end
        return "".join([*parts, text[at:]])

    def _found(self, text: str) -> list[Span]:
        known = self._spans.get(text)
        if known is None:
            known = spans(text)
            if len(text) <= _LONGEST_KEPT:
                if len(self._spans) >= _MOST_KEPT:
                    self._spans.clear()
                self._spans[text] = known
        return known


def _with_names(text: str, found: Sequence[Span], more: Iterable[Span]) -> list[Span]:
    """Names that lie in no other value are values too."""
    taken = bytearray(len(text))
    for span in found:
        taken[span.start : span.end] = b"\x01" * (span.end - span.start)
    free = [span for span in more if taken.find(1, span.start, span.end) < 0]
    return sorted([*found, *free], key=lambda span: span.start)


def _names_in(value: Json) -> frozenset[str]:
    return frozenset(word for text in _texts(value) for word in names(text))


def _texts(value: Json) -> Iterator[str]:
    """All texts in a JSON value, those of JSON texts inside of it by themselves."""
    if isinstance(value, str):
        held = _parsed_exactly(value) if value[:1] in {"{", "["} else None
        if held is None:
            yield value
        else:
            yield from _texts(held[0])
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)


def _parsed(text: str | None) -> Json:
    return None if text is None else json.loads(text)


def _written(value: Json) -> str:
    """As `formats.row.dumped` writes it."""
    return json.dumps(value, ensure_ascii=False)


def _parsed_exactly(text: str) -> tuple[Json, _Style] | None:
    """The value of a JSON text and how it is written; None if it cannot be written so again."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return next(((value, style) for style in _STYLES if style.written(value) == text), None)
