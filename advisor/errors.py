"""Errors of the domain. They carry data and know nothing of HTTP or SQL.

RooftuneError
├── InvalidInput              a value that cannot be right: field, message
├── UnknownName               an exact look-up that failed: kind, name, known
├── NotFound                  no such noun for this caller: noun, id
├── AlreadyExists             a second one where only one may be: noun, rule
├── UnsupportedArchitecture   a model whose arithmetic is not described
├── UnreadableFile            an upload that is not a readable text file
│   └── FileTooLong           one with more rows or bytes than may be read
├── NoUsableRows              an upload without one row that can be replayed
├── StateConflict             a transition the state machine does not have
├── NotAllowed                a caller who may not do this: action, remedy
├── Unavailable               something needed is not there now: what, remedy
└── EngineFailed              an engine that did not start or died: kind, detail
"""

from collections.abc import Sequence


class RooftuneError(Exception):
    """Root of the errors that Rooftune raises on purpose."""


class InvalidInput(RooftuneError):
    """A value that cannot be right; `field` names it as the caller wrote it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class UnknownName(RooftuneError):
    """A name that is not in a closed list; the known ones are part of the message."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(known) or 'none'}")
        self.kind = kind
        self.name = name
        self.known = tuple(known)


class NotFound(RooftuneError):
    """No such thing, or not one that this caller may see."""

    def __init__(self, noun: str, identifier: str) -> None:
        super().__init__(f"no {noun} {identifier!r}")
        self.noun = noun
        self.identifier = identifier


class AlreadyExists(RooftuneError):
    """A second one where only one may be; `rule` names the constraint."""

    def __init__(self, noun: str, rule: str) -> None:
        super().__init__(f"{noun} exists already ({rule})")
        self.noun = noun
        self.rule = rule


class UnsupportedArchitecture(RooftuneError):
    """A `config.json` whose arithmetic Rooftune does not describe."""

    def __init__(self, architecture: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"architecture {architecture!r} is not described yet; described: {', '.join(supported)}"
        )
        self.architecture = architecture
        self.supported = tuple(supported)


class UnreadableFile(RooftuneError):
    """An upload that cannot be read as text rows; `remedy` says what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class FileTooLong(UnreadableFile):
    """An upload with more rows or more bytes, once decompressed, than may be read."""


class NoUsableRows(RooftuneError):
    """A file none of whose rows can be replayed, or too many of whose rows are bad.

    `rejects` are the first bad lines: number, field and reason, which never quotes a text.
    """

    def __init__(
        self,
        reason: str,
        found: Sequence[str],
        accepted: Sequence[str],
        rejects: Sequence[tuple[int, str, str]] = (),
    ) -> None:
        super().__init__(
            f"{reason}; columns found: {', '.join(found) or 'none'};"
            f" columns accepted: {', '.join(accepted)}"
        )
        self.reason = reason
        self.found = tuple(found)
        self.accepted = tuple(accepted)
        self.rejects = tuple(rejects)


class StateConflict(RooftuneError):
    """A change of state that the state machine of `noun` does not have."""

    def __init__(self, noun: str, state: str, wanted: str, remedy: str | None = None) -> None:
        message = f"{noun} is {state!r} and cannot become {wanted!r}"
        super().__init__(message if remedy is None else f"{message}; {remedy}")
        self.noun = noun
        self.state = state
        self.wanted = wanted
        self.remedy = remedy


class NotAllowed(RooftuneError):
    """The caller is known but may not do this; `remedy` says who may or what to change."""

    def __init__(self, action: str, remedy: str) -> None:
        super().__init__(f"not allowed to {action}; {remedy}")
        self.action = action
        self.remedy = remedy


class Unavailable(RooftuneError):
    """Something needed is not there at the moment."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


class EngineFailed(RooftuneError):
    """An engine that did not become ready or died; `kind` is a `states.FailureKind` value.

    `setting` is the setting at fault where the engine names one, `bound` its highest value that
    would have worked.
    """

    def __init__(
        self, kind: str, detail: str, *, setting: str | None = None, bound: int | None = None
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.setting = setting
        self.bound = bound
