"""Values replaced by others of the same form and length: a letter by a letter, a digit by a digit.

What stands for a value follows from the value and a secret alone, so it is the same wherever the
value stands, whatever was seen before. Without the secret it tells nothing but the form.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from ipaddress import IPv6Address

_VOWELS, _CONSONANTS = "aeiou", "bcdfghklmnprstvw"
_HEXADECIMAL = "0123456789abcdef"
_PLANE = 64  # letters of other scripts are taken from their neighbours in Unicode
_WORD = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"\d+")
_OCTET = 255
# What says which service a key is for, and nothing else.
_KEY_HEAD = re.compile(
    r"(?:sk-(?:proj-|ant-)?|[spr]k_(?:live|test)_|pk-|rk-|rt_|gh[pousr]_|github_pat_|glpat-"
    r"|xox[a-z]-|hf_|AKIA|ASIA|AIza|ya29\.|npm_|SG\.|eyJ)"
)
_ARMOUR = re.compile(r"(-----[A-Z ]+-----)")

Stream = Iterator[int]


@cache
def _neighbours(block: int, kind: str) -> str:
    """Letters of one Unicode category between two multiples of `_PLANE`."""
    found = (chr(place) for place in range(block * _PLANE, (block + 1) * _PLANE))
    return "".join(letter for letter in found if unicodedata.category(letter) == kind)


def _one_of(letters: str, number: int, old: str) -> str:
    """A letter of `letters` other than `old` where there is one."""
    picked = letters[number % len(letters)]
    if picked == old:
        picked = letters[(number + 1) % len(letters)]
    return picked


def _spoken(letter: str, number: int) -> str:
    """A vowel for a vowel, a consonant for a consonant: the word stays as easy to tokenise."""
    if letter.isdigit():
        return _one_of("0123456789", number, letter) if letter.isascii() else letter
    low = letter.lower()
    if low in _VOWELS or (low.isascii() and low.isalpha()):
        picked = _one_of(_VOWELS if low in _VOWELS else _CONSONANTS, number, low)
        return picked.upper() if letter.isupper() else picked
    kind = unicodedata.category(letter)
    if not kind.startswith("L"):
        return letter
    return _one_of(_neighbours(ord(letter) // _PLANE, kind), number, letter)


def _random(letter: str, number: int) -> str:
    """Any letter of the same case: keys look like noise."""
    if letter.isdigit() or not letter.isascii() or not letter.isalpha():
        return _spoken(letter, number)
    picked = _one_of("abcdefghijklmnopqrstuvwxyz", number, letter.lower())
    return picked.upper() if letter.isupper() else picked


def _hexadecimal(letter: str, number: int) -> str:
    """A hexadecimal digit of the same case."""
    if letter.lower() not in _HEXADECIMAL:
        return letter
    picked = _one_of(_HEXADECIMAL, number, letter.lower())
    return picked.upper() if letter.isupper() else picked


class Substitutes:
    """What stands for what under one secret."""

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret).digest()

    def of(self, kind: str, value: str) -> str:
        """The substitute of a value that was found as `kind` (see `privacy.personal`)."""
        return _FORMS[kind](self, value)

    def hashed(self, value: str) -> str:
        """Sixteen hexadecimal digits in the place of an id."""
        return blake2b(
            value.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8
        ).hexdigest()

    def word(self, value: str) -> str:
        """A name, or a part of one: the same letters whatever their case."""
        return self._each(_spoken, value, value.casefold())

    def words(self, value: str) -> str:
        """Every word of a text by itself, what stands between them as it is."""
        return _WORD.sub(lambda found: self.word(found[0]), value)

    def number(self, value: str) -> str:
        """Digits, however they are grouped; a leading 0 stays one, no other digit becomes one."""
        digits = "".join(_DIGITS.findall(value))
        fresh = iter(self._each(_spoken, digits, digits))

        def digit(found: re.Match[str]) -> str:
            return "".join(next(fresh) for _ in found[0])

        made = _DIGITS.sub(digit, value)
        # The first digit says how the number is dialled, and a number of JSON has no 0 there.
        place = value.index(digits[0])
        lead = "0" if digits[0] == "0" else made[place] if made[place] != "0" else "7"
        return f"{made[:place]}{lead}{made[place + 1 :]}"

    def email(self, value: str) -> str:
        """Another address; the last part of its domain stays."""
        local, _, domain = value.rpartition("@")
        body, dot, last = domain.rpartition(".")
        return f"{self.words(local)}@{self.words(body)}{dot}{last}"

    def key(self, value: str) -> str:
        """A secret: its service's prefix stays."""
        head = _KEY_HEAD.match(value)
        size = 0 if head is None or head.end() == len(value) else head.end()
        body = value[size:]
        plain = all(letter in _HEXADECIMAL or not letter.isalnum() for letter in body)
        return value[:size] + self._each(_hexadecimal if plain else _random, body, body)

    def armoured(self, value: str) -> str:
        """A private key between its header and footer."""
        parts = _ARMOUR.split(value)
        return "".join(
            part if place % 2 else self._each(_random, part, part)
            for place, part in enumerate(parts)
        )

    def account(self, value: str) -> str:
        """An IBAN; its country stays."""
        return value[:2] + self._each(_random, value[2:], value.replace(" ", ""))

    def address(self, value: str) -> str:
        """An IPv4 address whose parts have as many digits as before."""
        stream = self._stream(value)
        return _DIGITS.sub(lambda found: _octet(found[0], next(stream)), value)

    def hexadecimal(self, value: str) -> str:
        """An IPv6 or MAC address."""
        return self._each(_hexadecimal, value, value.lower())

    def _each(self, form: Callable[[str, int], str], value: str, known_as: str) -> str:
        stream = self._stream(known_as)
        return "".join(form(letter, next(stream)) for letter in value)

    def _stream(self, known_as: str) -> Stream:
        """Numbers that follow from a value and the secret, without an end."""
        body, part = known_as.encode("utf-8", "surrogatepass"), 0
        while True:
            yield from blake2b(body, key=self._key, salt=part.to_bytes(8, "big")).digest()
            part += 1


def _octet(digits: str, number: int) -> str:
    low, high = {1: (1, 9), 2: (10, 99), 3: (100, _OCTET)}[len(digits)]
    picked = low + number % (high - low + 1)
    if picked == int(digits):
        picked = low + (number + 1) % (high - low + 1)
    return str(picked).zfill(len(digits))


def is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address in full or shortened form."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


_FORMS: Mapping[str, Callable[[Substitutes, str], str]] = {
    "private key": Substitutes.armoured,
    "credentials": Substitutes.key,
    "key": Substitutes.key,
    "email": Substitutes.email,
    "card": Substitutes.number,
    "iban": Substitutes.account,
    "address": Substitutes.address,
    "hexadecimal": Substitutes.hexadecimal,
    "number": Substitutes.number,
    "name": Substitutes.words,
}
