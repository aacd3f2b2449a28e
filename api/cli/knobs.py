"""`--config`: the user's own ``vllm serve`` command, or knobs in vLLM's names as ``key=value``."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.baseline_command import parse_serve_command
from advisor.errors import InvalidInput
from advisor.serving import ServingConfig
from advisor.simulator.engine import SchedulerWords
from advisor.simulator.settings import POLICIES

MODEL = "model"
# Flags that a study does not set but a simulation understands, by the field that keeps them.
_OWN = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--scheduling-policy": "scheduling_policy",
    "--long-prefill-token-threshold": "long_prefill_token_threshold",
}
_JSON_PAIR = re.compile(r"[a-z_]+=\{.*\}")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What is simulated; `notes` has a line for each setting that is not."""

    config: ServingConfig
    words: SchedulerWords
    notes: tuple[str, ...] = ()


def knobs_of(given: Sequence[str]) -> Knobs:
    """The settings of one command, or of any number of ``key=value`` pairs.

    A value that vLLM would not take raises `InvalidInput`.
    """
    words = [word for text in given for word in _split(text)]
    if words and not _is_command(words):
        words = ["vllm", "serve", MODEL, *_flags_of(words)]
    if not words:
        return Knobs(config=ServingConfig(), words=SchedulerWords())
    own, rest = _taken(words)
    parsed = parse_serve_command(shlex.join(rest))
    return Knobs(
        config=ServingConfig(functional=parsed.functional, levers=parsed.levers),
        words=_scheduler_words(own),
        notes=parsed.notes,
    )


def _split(text: str) -> list[str]:
    """Words as a shell makes them; one pair whose value is JSON keeps its quotes."""
    if _JSON_PAIR.fullmatch(text.strip()):
        return [text.strip()]
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidInput("--config", f"cannot be read as a command: {error}") from None


def _is_command(words: Sequence[str]) -> bool:
    """Whether it is a command and not pairs: those have no flag and all an equals sign."""
    return any(word.startswith("-") or "=" not in word for word in words)


def _flags_of(pairs: Sequence[str]) -> list[str]:
    """``max_num_seqs=64`` as vLLM's flag."""
    flags = []
    for pair in pairs:
        key, _, value = pair.partition("=")
        name = key.strip().replace("_", "-")
        if value.lower() in _TRUE:
            flags.append(f"--{name}")
        elif value.lower() in _FALSE:
            flags.append(f"--no-{name}")
        else:
            flags.append(f"--{name}={_json(value)}")
    return flags


def _json(value: str) -> str:
    """A value whose JSON lost its quotes on the way through a shell is not guessed at."""
    if value.startswith("{"):
        try:
            json.loads(value)
        except ValueError:
            raise InvalidInput("--config", f"{value} is not JSON: quote the whole pair") from None
    return value


def _taken(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Our own flags with their values, and the other words."""
    own: dict[str, str] = {}
    rest: list[str] = []
    places = iter(words)
    for word in places:
        flag, equals, value = word.partition("=")
        if flag not in _OWN:
            rest.append(word)
            continue
        found = value if equals else next(places, None)
        if found is None:
            raise InvalidInput(flag, "has no value")
        own[_OWN[flag]] = found
    return own, rest


def _scheduler_words(own: dict[str, str]) -> SchedulerWords:
    policy = own.get("scheduling_policy", "fcfs")
    if policy not in POLICIES:
        raise InvalidInput("--scheduling-policy", f"{policy} is none of {', '.join(POLICIES)}")
    return SchedulerWords(
        tensor_parallel_size=_count(own, "tensor_parallel_size", 1),
        long_prefill_token_threshold=_count(own, "long_prefill_token_threshold", 0),
        scheduling_policy="priority" if policy == "priority" else "fcfs",
    )


def _count(own: dict[str, str], name: str, least: int) -> int:
    held = own.get(name)
    if held is None:
        return least
    if not held.isdecimal() or int(held) < least:
        raise InvalidInput(name, f"{held} is not a whole number from {least} up")
    return int(held)
