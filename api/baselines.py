"""What a study starts from: levers as given, or the user's own command beside its target."""

from dataclasses import dataclass

from advisor.baseline_command import ParsedBaseline, parse_serve_command
from advisor.errors import InvalidInput
from advisor.serving import FunctionalSettings, Levers, ServingConfig

FIELD = "baseline_command"
# Long text that says nothing to a reader of a message.
UNSHOWN = frozenset({"chat_template"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """A baseline; `command` is the user's own as it may be shown, `notes` what is not kept."""

    config: ServingConfig
    command: str | None = None
    notes: tuple[str, ...] = ()


def starting_point(
    command: str | None, levers: Levers | None, *, functional: FunctionalSettings, model: str
) -> StartingPoint:
    """The baseline on a target with these functional settings, which no command changes.

    Raises `InvalidInput` for a command that sets one of them to another value.
    """
    if command is None:
        return StartingPoint(config=ServingConfig(functional=functional, levers=levers or Levers()))
    parsed = parse_serve_command(command)
    differing = _differences(parsed, functional)
    if differing:
        raise InvalidInput(
            FIELD,
            f"{'; '.join(differing)}. Functional settings are the target's: make a target with"
            " yours, or leave them out of the command",
        )
    return StartingPoint(
        config=ServingConfig(functional=functional, levers=parsed.levers),
        command=parsed.shown,
        notes=(*_about_model(parsed, model), *parsed.notes),
    )


def _differences(parsed: ParsedBaseline, functional: FunctionalSettings) -> list[str]:
    found = []
    for name in parsed.functional_given:
        own, kept = getattr(parsed.functional, name), getattr(functional, name)
        if own == kept:
            continue
        if name in UNSHOWN:
            found.append(f"{name} of the command is not the target's")
        else:
            found.append(f"{name} is {_told(own)} in the command and {_told(kept)} in the target")
    return found


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else str(value)


def _about_model(parsed: ParsedBaseline, model: str) -> tuple[str, ...]:
    if parsed.model is None or parsed.model == model:
        return ()
    return (f"the model {parsed.model!r} of the command is not used: the target has {model!r}",)
