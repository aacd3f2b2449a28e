"""Values that name a person or open a door, replaced in texts by placeholders."""

import re
from dataclasses import dataclass, field

from advisor.canonical import Json

# In this order: an address inside of a URL is part of the URL's credentials, digits inside of a
# key are part of the key.
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("credentials", re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)")),
    ("email", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("key", re.compile(r"\b(?:sk|pk|rk|rt|ghp|gho|xox[a-z]|hf|AKIA|eyJ)[-_]?[A-Za-z0-9._-]{16,}")),
    ("key", re.compile(r"\b(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[A-Za-z0-9_-]{32,}\b")),
    ("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")),
    ("address", re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")),
    ("number", re.compile(r"(?<![\w.])(?!\d+\.\d+(?![\d.]))\+?\d(?:[ ()./-]{0,2}\d){6,}(?![\w])")),
)


@dataclass(slots=True)
class Redactor:
    """Replaces e-mail addresses, keys, credentials, IP addresses, account and phone numbers.

    One value becomes one placeholder (``<email-1>``) wherever it occurs, so that what requests
    share stays shared and what an answer copies from its prompt stays a copy. Names and places in
    plain words are not found: this makes a sample less delicate, it does not make it anonymous.
    """

    _seen: dict[tuple[str, str], str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """The text with placeholders."""
        for kind, pattern in KINDS:
            text = pattern.sub(lambda found, kind=kind: self._placeholder(kind, found[0]), text)  # type: ignore[misc]
        return text

    def value(self, value: Json) -> Json:
        """A JSON value with placeholders in all its texts; its keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {name: self.value(item) for name, item in value.items()}
        return value

    def _placeholder(self, kind: str, value: str) -> str:
        known = self._seen.get((kind, value))
        if known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known = self._seen[kind, value] = f"<{kind}-{self._counts[kind]}>"
        return known
