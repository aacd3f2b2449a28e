"""Keys of a `config.json`, each read as the kind of value it must be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Keys:
    """A JSON object under `path`; every error names the key as ``path.key``.

    `defaults` are what the model's configuration class of transformers takes for a key that is not
    written; they are given only where the file is known to leave out such keys.
    """

    values: Mapping[str, object]
    path: str = "config"
    defaults: Mapping[str, object] = field(default_factory=dict)

    def name(self, key: str) -> str:
        """The key as an error names it."""
        return f"{self.path}.{key}"

    def raw(self, key: str) -> object | None:
        """The value as written; None where it is missing or null."""
        if key in self.values:
            return self.values[key]
        return self.defaults.get(key)

    def stated(self, key: str) -> bool:
        """Whether the file itself has the key, null included."""
        return key in self.values

    def count(self, *keys: str) -> int:
        """The first of `keys` that is there, a whole number above 0; one must be."""
        found = self.optional(*keys)
        if found is None:
            raise InvalidInput(self.name(keys[0]), "is missing")
        return found

    def optional(self, *keys: str) -> int | None:
        """The first of `keys` that is there, a whole number above 0."""
        found = self.optional_number(*keys)
        if found == 0:
            written = next(key for key in keys if self.raw(key) is not None)
            raise InvalidInput(self.name(written), "0 is not a whole number above 0")
        return found

    def optional_number(self, *keys: str) -> int | None:
        """The first of `keys` that is there, a whole number from 0."""
        for key in keys:
            value = self.raw(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidInput(self.name(key), f"{value!r} is not a whole number above 0")
            return value
        return None

    def flag(self, key: str, *, default: bool) -> bool:
        """A switch."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(self.name(key), f"{value!r} is neither true nor false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """A word."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InvalidInput(self.name(key), f"{value!r} is not text")
        return value

    def items(self, key: str) -> Sequence[object] | None:
        """A list; None where there is none."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise InvalidInput(self.name(key), f"{value!r} is not a list")
        return value

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of words; None where there is none."""
        found = self.items(key)
        if found is None:
            return None
        for item in found:
            if not isinstance(item, str):
                raise InvalidInput(self.name(key), f"{item!r} is not text")
        return tuple(str(item) for item in found)

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where there is none."""
        found = self.items(key)
        if found is None:
            return None
        numbers: list[int] = []
        for item in found:
            if not isinstance(item, int) or isinstance(item, bool) or item < 0:
                raise InvalidInput(self.name(key), f"{item!r} is not a whole number")
            numbers.append(item)
        return tuple(numbers)

    def section(self, key: str, defaults: Mapping[str, object] | None = None) -> "Keys | None":
        """A nested object; None where there is none."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InvalidInput(self.name(key), "is not an object")
        return Keys(value, self.name(key), defaults or {})

    def having(self, defaults: Mapping[str, object]) -> "Keys":
        """The same keys with the defaults of a configuration class."""
        return Keys(self.values, self.path, {**defaults, **self.defaults})
