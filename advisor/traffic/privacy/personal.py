"""Where a text holds what names a person or opens a door.

Patterns and check digits, no model: what is written like an address, a key or an account is found
wherever it stands. Names of people are found by `privacy.naming`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import phonenumbers
from phonenumbers import NumberParseException, ValidationResult
from stdnum import iban, luhn

from advisor.traffic.privacy.substitution import is_ipv6

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch ``text[start:end]`` and what was found there."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Sight:
    """One kind of value: its pattern (group 1 is the value, or all), what rules it out.

    A value begins at most `before` characters before what `near` finds, and it and what the
    pattern wants to see behind it end at most `after` behind that.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    near: re.Pattern[str] | None = None
    before: int = 0
    after: int = 1
    check: Check | None = None

    def matches(self, text: str, stretches: "Stretches") -> Iterator[re.Match[str]]:
        """Everything that looks like a value of this kind."""
        if self.hints and not any(hint in text for hint in self.hints):
            return
        if self.near is None:
            yield from self.pattern.finditer(text)
            return
        for start, end in stretches.of(self.near):
            yield from self.pattern.finditer(text, max(0, start - self.before), end + self.after)


class Stretches:
    """Where the quick patterns find something in one text; several sights share one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[re.Pattern[str], list[tuple[int, int]]] = {}

    def of(self, near: re.Pattern[str]) -> list[tuple[int, int]]:
        """Begin and end of every stretch."""
        if near not in self._found:
            self._found[near] = [match.span() for match in near.finditer(self._text)]
        return self._found[near]


_DATE = re.compile(
    r"(?:1[89]|20)\d\d[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])(?:[ T.].*)?"
    r"|(?:0?[1-9]|[12]\d|3[01])[-/.](?:0?[1-9]|[12]\d|3[01])[-/.](?:1[89]|20)\d\d(?: .*)?"
)
_GROUPED = re.compile(r"\d{1,3}(?:([., ])\d{3})(?:\1\d{3})*")
_LOCAL = re.compile(r"\d{3}[-. ]\d{4}")
_NOT_DIGITS = re.compile(r"\D+")
# Plans that a number without its country is tried against: with a leading 0, and without.
_TRUNK_REGIONS = ("GB", "DE", "FR", "IT", "NL", "CH", "JP", "AU", "IN")
_PLAIN_REGIONS = ("US", "ES", "IN", "CN", "BR")
_CARD_DIGITS = range(13, 20)
_LONGEST_PHONE = 15


def _is_card(text: str) -> bool:
    digits = _NOT_DIGITS.sub("", text)
    return len(digits) in _CARD_DIGITS and luhn.is_valid(digits)


def _is_iban(text: str) -> bool:
    return bool(iban.is_valid(text.replace(" ", "")))


def _is_mixed(text: str) -> bool:
    """Letters and digits: no hyphenated words, no rules of dashes."""
    return any(letter.isdigit() for letter in text) and any(letter.isalpha() for letter in text)


def _is_address(text: str) -> bool:
    return all(int(part) <= 255 for part in text.split("."))  # noqa: PLR2004  (an octet's largest)


def _is_number(text: str) -> bool:
    """A phone number, or a row of digits that numbers somebody; dates and amounts are neither."""
    if text.isdigit():
        return True
    digits = _NOT_DIGITS.sub("", text)
    if text.startswith("+") or _LOCAL.fullmatch(text):
        return True
    if len(digits) > _LONGEST_PHONE or _DATE.fullmatch(text) or _GROUPED.fullmatch(text):
        return False
    regions = _TRUNK_REGIONS if digits.startswith("0") else _PLAIN_REGIONS
    return any(_fits(text, region) for region in regions)


def _fits(text: str, region: str) -> bool:
    try:
        number = phonenumbers.parse(text, region)
    except NumberParseException:
        return False
    if region == "US":  # ten digits there, whoever they are given to
        reason = phonenumbers.is_possible_number_with_reason(number)
        return bool(reason == ValidationResult.IS_POSSIBLE)
    return bool(phonenumbers.is_valid_number(number))


_CALLED_SO = (
    r"(?:api[_-]?key|apikey|access[_-]?key|secret[_-]?key|client[_-]?secret|auth[_-]?token"
    r"|access[_-]?token|refresh[_-]?token|token|secret|password|passwd|passphrase|pwd)"
)
_SECRET = re.compile(_CALLED_SO, re.IGNORECASE)
# In this order: an address inside of a URL belongs to its credentials, digits inside of a key to
# the key, a card's to the card.
#
# Where to look comes first, as most of a text holds nothing: `hints` are texts one of which must
# occur, `near` finds stretches quickly (it starts with a plain character or class, behind which
# the regular expression engine skips), and the pattern is tried there only.
_DIGITS_NEAR = re.compile(r"[0-9][0-9 ()./-]{5,}[0-9]")
_RUNS_NEAR = re.compile(r"[A-Za-z0-9_-]{16,}")
_COLONS_NEAR = re.compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]*")
_DASHES_NEAR = re.compile(r"-[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}-[0-9A-Fa-f-]*")
_MAC = r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])"
_SIGHTS: tuple[Sight, ...] = (
    Sight(
        "private key",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL),
        hints=("PRIVATE KEY-----",),
    ),
    Sight("credentials", re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"), hints=("://",)),
    Sight(
        "email",
        re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"),
        near=re.compile(r"@[\w-]+\.[\w.-]+"),
        before=64,
    ),
    Sight(
        "key",
        re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
        hints=("eyJ",),
    ),
    Sight(
        "key",
        re.compile(
            r"\b(?:[sp]k_(?:live|test)_|[spr]k[-_]|rt_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|hf_"
            r"|npm_|dop_v1_|AKIA|ASIA|AIza|ya29\.|SG\.)[A-Za-z0-9._-]{16,}",
        ),
        near=_RUNS_NEAR,
        before=8,
        after=200,
        check=_is_mixed,
    ),
    Sight(
        "key",
        re.compile(
            rf"\b{_CALLED_SO}\b[\"']?\s*[:=]\s*[\"']?([^\s\"',;&<>]{{4,200}})", re.IGNORECASE
        ),
        hints=(
            "key",
            "oken",
            "ecret",
            "assw",
            "assphrase",
            "pwd",
            "KEY",
            "TOKEN",
            "SECRET",
            "PASS",
        ),
    ),
    Sight("key", re.compile(r"\b[Bb]earer ([\w.~+/-]{12,}=*)"), hints=("earer ",)),
    Sight(
        "key",
        re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{32,}(?![A-Za-z0-9_-])"),
        near=_RUNS_NEAR,
        check=_is_mixed,
    ),
    Sight(
        "iban",
        re.compile(r"[A-Z](?<!\w.)[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
        check=_is_iban,
    ),
    Sight(
        "card",
        re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?!\w)"),
        near=_DIGITS_NEAR,
        check=_is_card,
    ),
    Sight("hexadecimal", re.compile(_MAC), near=_COLONS_NEAR, before=4),
    Sight("hexadecimal", re.compile(_MAC), near=_DASHES_NEAR, before=4),
    Sight(
        "hexadecimal",
        re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])"),
        near=_COLONS_NEAR,
        before=4,
        check=lambda text: len(text) > 7 and is_ipv6(text),  # noqa: PLR2004  ("::1" tells nothing)
    ),
    Sight(
        "address",
        re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"),
        near=_DIGITS_NEAR,
        check=_is_address,
    ),
    Sight("number", re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"), near=_DIGITS_NEAR),
    Sight(
        "number",
        re.compile(r"(?<![\w.])(?!\d+\.\d+(?![\d.]))[+(]{0,2}\d(?:[ ()./-]{0,2}\d){6,}(?!\w)"),
        near=_DIGITS_NEAR,
        before=2,
        check=_is_number,
    ),
)


def is_secret(name: str) -> bool:
    """Whether what is called so in a JSON object is a secret."""
    return _SECRET.fullmatch(name) is not None


def spans(text: str) -> list[Span]:
    """Values in a text, in order, none inside of another; names are not among them."""
    taken: bytearray | None = None
    found: list[Span] = []
    stretches = Stretches(text)
    for sight in _SIGHTS:
        for match in sight.matches(text, stretches):
            start, end = match.span(match.lastindex or 0)
            if taken is not None and taken.find(1, start, end) >= 0:
                continue
            if sight.check is not None and not sight.check(text[start:end]):
                continue
            taken = bytearray(len(text)) if taken is None else taken
            taken[start:end] = b"\x01" * (end - start)
            found.append(Span(start, end, sight.kind))
    return sorted(found, key=lambda span: span.start)
