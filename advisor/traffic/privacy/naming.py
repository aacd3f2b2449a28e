"""Names of people, where the text itself says that they are names."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from advisor.traffic.privacy.personal import Sight, Span, Stretches

_NAME_WORD = r"(?:[A-ZÀ-ÖØ-Þ]\.|[A-ZÀ-ÖØ-Þ][\w'\u2019-]*)"
_NAME = rf"{_NAME_WORD}(?:[ \t]+{_NAME_WORD}){{0,2}}"
_CUES: tuple[Sight, ...] = (
    Sight(
        "name",
        re.compile(
            rf"\b(?:Mr|Mrs|Ms|Mx|Miss|Dr|Prof|Herrn?|Frau|Mme|Mlle|Señora?|Sra?)\.?[ \t]+({_NAME})"
        ),
        hints=(
            "Mr",
            "Ms",
            "Mx",
            "Miss",
            "Dr",
            "Prof",
            "Herr",
            "Frau",
            "Mme",
            "Mlle",
            "Se\u00f1",
            "Sr",
        ),
    ),
    Sight(
        "name",
        re.compile(
            r"\b(?:Dear|Hi|Hello|Hey|Hallo|Liebe[rs]?|Bonjour|Hola|Querid[oa]|Estimad[oa])[ \t]+"
            rf"({_NAME})(?=[ \t]*(?:[,!:.\n]|\Z))"
        ),
        hints=(
            "Dear ",
            "Hi ",
            "Hello ",
            "Hey ",
            "Hallo ",
            "Liebe",
            "Bonjour",
            "Hola",
            "Queri",
            "Estim",
        ),
    ),
    Sight(
        "name",
        re.compile(
            r"\b(?:(?i:my (?:full |first |last )?name is|my name's|mein name ist|je m'appelle"
            rf"|me llamo|mi chiamo)[ \t]+({_NAME}|[^\W\d_][\w'\u2019-]*)"
            rf"|[cC]all me[ \t]+({_NAME}))"
        ),
        hints=(
            "name is",
            "Name is",
            "name's",
            "all me",
            "AME IS",
            "ame ist",
            "appelle",
            "llamo",
            "chiamo",
        ),
        near=re.compile(r"(?:[nN]ame(?: is|'s| ist)|NAME IS|all me|m'appelle|llamo|chiamo)"),
        before=16,
        after=120,
    ),
    Sight(
        "name",
        re.compile(
            r"(?:^|(?<=[\n,;>]))[ \t>]*(?:From|To|Cc|Bcc|Sender|Reply-To|Surname"
            r"|(?i:(?:full |first |last )?name|customer(?: name)?|patient|contact|attn|author))"
            rf"[ \t]*:[ \t]*\"?({_NAME})"
        ),
        near=re.compile(r":[ \t]*\"?[A-ZÀ-ÖØ-Þ]"),
        before=24,
        after=120,
    ),
    Sight(
        "name",
        re.compile(
            r"\b(?:[Rr]egards|[Ss]incerely|[Tt]hanks|[Tt]hank you|[Cc]heers|[Bb]est|Yours"
            rf"|Grüße|Gruß|[Yy]ours truly),?[ \t]*\n+[ \t]*({_NAME})(?=[ \t.]*(?:\n|\Z))"
        ),
        near=re.compile(r"\n[ \t]*[A-ZÀ-ÖØ-Þ][^\n]{0,60}(?:\n|\Z)"),
        before=24,
        after=120,
    ),
)
_LETTER_RUN = re.compile(r"(?<!\w)[^\W\d_]{2,}")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_MAILED = re.compile(r"(?<![\w.+-])([\w.+-]{1,64})@[\w-]+\.")
_FEW = 64
_TITLES = frozenset({"Mr", "Mrs", "Ms", "Mx", "Miss", "Dr", "Prof", "Herr", "Herrn", "Frau", "Mme"})
# Who is greeted or written to without being named, and mailboxes of nobody.
_NOBODY = frozenset(
    (  # noqa: SIM905  (as a list it would be one word a line)
        "there world all everyone everybody team sir madam customer customers support user users"
        " assistant friend friends folks again claude chatgpt gpt you colleagues colleague hiring"
        " manager guys ai info sales contact hello noreply reply no-reply help service office mail"
        " admin team example test the this that and for not it yes no monday tuesday wednesday"
        " thursday friday saturday sunday january february march april june july august september"
        " october november december dear hi hey please note none null true false unknown account"
        " email phone address subject date name from to i we me my is in of on at"
    ).split()
)


def names(text: str) -> set[str]:
    """Words that the text itself marks as parts of a name, as they may be written.

    By titles, salutations, introductions, mail headers and mail addresses. A word is looked for
    without a capital only if it was introduced so ("my name is ada").
    """
    found: set[str] = set()
    for word in _cued(text):
        found |= {word, word.capitalize(), word.upper()}
    if "@" in text:
        for match in _MAILED.finditer(text):
            words = (part.lower() for part in _LETTERS.findall(match[1]))
            for word in words:
                if word not in _NOBODY:
                    found |= {word.capitalize(), word.upper()}
    return found


def _cued(text: str) -> Iterator[str]:
    stretches = Stretches(text)
    for cue in _CUES:
        for match in cue.matches(text, stretches):
            yield from _parts(match[match.lastindex or 0])


def _parts(name: str) -> Iterator[str]:
    """The words of a name up to the first that is none; an initial is not looked for elsewhere."""
    for word in _LETTER_RUN.findall(name):
        if word.lower() in _NOBODY:
            return
        if word not in _TITLES:
            yield word


def name_spans(text: str, wanted: AbstractSet[str]) -> list[Span]:
    """Where one of these words stands by itself."""
    if len(wanted) > _FEW:
        return [
            Span(*match.span(), "name")
            for match in _LETTER_RUN.finditer(text)
            if match[0] in wanted
        ]
    return [span for word in wanted for span in _places(text, word)]


def _places(text: str, word: str) -> Iterator[Span]:
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        inside = (start > 0 and text[start - 1].isalnum()) or text[end : end + 1].isalnum()
        if not inside:
            yield Span(start, end, "name")
        start = text.find(word, end)
