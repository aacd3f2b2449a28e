"""The user's own ``vllm serve`` command as typed fields; what is not kept is named, never echoed.

Names, defaults and spellings are those of vLLM 0.32 (vllm/engine/arg_utils.py,
vllm/utils/argparse_utils.py, vllm/config/speculative.py).
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from advisor.baseline_command.values import (
    SPECULATION,
    count_of,
    drafts_of,
    gibibytes_of,
    integer_of,
    json_object_of,
    one_of,
    share_of,
    size_of,
    text_of,
)
from advisor.baseline_command.words import (
    FIELD,
    Flag,
    Takes,
    is_flag,
    named,
    serve_words,
    shape_of,
    switched_on,
    values_after,
)
from advisor.canonical import canonical_bytes
from advisor.errors import InvalidInput
from advisor.serving import (
    DTYPES,
    KV_CACHE_DTYPES,
    LEVER_NAMES,
    FunctionalSettings,
    Levers,
)

MOST_LETTERS = 10_000
KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_FUNCTIONAL = tuple(item.name for item in fields(FunctionalSettings))
_KEPT: Mapping[str, tuple[str, Callable[[str, Sequence[str]], object]]] = {
    "--max-model-len": ("max_model_len", size_of),
    "--chat-template": ("chat_template", text_of),
    "--tool-call-parser": ("tool_call_parser", text_of),
    "--reasoning-parser": ("reasoning_parser", text_of),
    "--kv-cache-memory-bytes": ("kv_cache_space_gib", gibibytes_of),
    "--max-num-seqs": ("max_num_seqs", count_of),
    "--max-num-batched-tokens": ("max_num_batched_tokens", size_of),
    "--block-size": ("block_size", count_of),
    "--dtype": ("dtype", one_of(DTYPES)),
    "--kv-cache-dtype": ("kv_cache_dtype", one_of(KV_CACHE_DTYPES)),
    "--gpu-memory-utilization": ("gpu_memory_utilization", share_of),
}
_KEPT_SWITCHES: Mapping[str, str] = {
    "--enforce-eager": "enforce_eager",
    "--enable-prefix-caching": "enable_prefix_caching",
    "--enable-chunked-prefill": "enable_chunked_prefill",
}
_OTHER_NAMES = {
    "-sc": SPECULATION,
    "--spec-method": f"{SPECULATION}.method",
    "--spec-model": f"{SPECULATION}.model",
    "--spec-tokens": f"{SPECULATION}.num_speculative_tokens",
    "-q": "--quantization",
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
}
# Where, under which names and for whom it is served, and what it writes.
_DEPLOYMENT = frozenset(
    {
        *("--host", "--port", "--uds", "--root-path", "--served-model-name", "--response-role"),
        *("--api-key", "--hf-token", "--download-dir", "--api-server-count", "--middleware"),
        *("--allowed-origins", "--allowed-methods", "--allowed-headers", "--max-log-len"),
        *("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"),
        *("--log-level", "--uvicorn-log-level", "--log-config-file", "--logging-config"),
        "--otlp-traces-endpoint",
    }
)
_DEPLOYMENT_SWITCHES = frozenset(
    {
        *("--disable-log-stats", "--disable-log-requests", "--enable-log-requests"),
        *("--enable-log-outputs", "--enable-log-deltas", "--disable-uvicorn-access-log"),
        *("--disable-fastapi-docs", "--allow-credentials", "--enable-request-id-headers"),
        *("--enable-server-load-tracking", "--enable-prompt-tokens-details"),
    }
)
# Switches that are not kept: the word after one is not its value.
_SWITCHES = frozenset(
    {
        *("--trust-remote-code", "--async-scheduling", "--enable-lora", "--enable-sleep-mode"),
        *("--enable-expert-parallel", "--enable-eplb", "--enable-dbo", "--skip-tokenizer-init"),
        *("--disable-custom-all-reduce", "--disable-cascade-attn", "--language-model-only"),
        *("--disable-sliding-window", "--disable-hybrid-kv-cache-manager", "--headless"),
        *("--enable-auto-tool-choice", "--enable-prompt-embeds", "--enable-force-include-usage"),
    }
)
_MANY = frozenset(
    {
        *("--served-model-name", "--api-key", "--allowed-origins", "--allowed-methods"),
        *("--allowed-headers", "--middleware", "--lora-modules"),
    }
)
_ELSEWHERE = "is ignored: it belongs to a deployment, not to a measurement"
_NEITHER = "is not kept: Rooftune neither sets nor tunes it"
_REASONS = {
    "--config": "is not kept: its file is not read; write its settings as flags",
    "--quantization": "is not kept: a quantized checkpoint is a target of its own",
    "--trust-remote-code": "is not kept: no code of a model is ever run",
    "--tensor-parallel-size": "is not kept: an engine has one device here",
    "--pipeline-parallel-size": "is not kept: an engine has one device here",
    "--data-parallel-size": "is not kept: an engine has one device here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBaseline:
    """A command as far as Rooftune understands it.

    `given` are the flags and variables that were kept, in order, `functional_given` the fields of
    `functional` among them. `notes` has one line for each that was not kept. `shown` is the
    command with the shape of every value that was not kept in its place.
    """

    model: str | None
    functional: FunctionalSettings
    levers: Levers
    notes: tuple[str, ...]
    given: tuple[str, ...]
    functional_given: tuple[str, ...]
    shown: str


@dataclass(slots=True)
class _Reading:
    """What was read so far; of a flag that comes twice the later one wins, as in vLLM."""

    model: str | None = None
    kept: dict[str, object] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    drafts: dict[str, Any] = field(default_factory=dict)

    def keep(self, flag: str, name: str, value: object, shown: str) -> None:
        self.kept[name] = value
        self.notes.pop(flag, None)
        self.given.pop(flag, None)
        self.given[flag] = shown

    def leave(self, flag: str, values: Sequence[str], why: str) -> None:
        shape = shape_of(values)
        self.notes[flag] = f"{flag} ({shape}) {why}" if values else f"{flag} {why}"
        self.given[flag] = f"{flag}=<{shape}>" if values else flag


def parse_serve_command(text: str) -> ParsedBaseline:
    """Read ``vllm serve MODEL --a b ...`` or the older module form, in a container or not.

    Raises `InvalidInput` or `UnknownName` that names the flag and the remedy; no value is part of
    a message.
    """
    if len(text) > MOST_LETTERS:
        raise InvalidInput(FIELD, f"is longer than {MOST_LETTERS} letters; paste the command only")
    found = serve_words(text)
    reading = _Reading()
    for name, value in found.environment:
        _read_variable(reading, name, value)
    for flag in _flags(reading, found.words):
        _read(reading, flag)
    _finish_drafts(reading)
    return _parsed(reading)


def _parsed(reading: _Reading) -> ParsedBaseline:
    kept: dict[str, Any] = reading.kept
    functional = {name: value for name, value in kept.items() if name in _FUNCTIONAL}
    levers = {name: value for name, value in kept.items() if name in LEVER_NAMES}
    model = [] if reading.model is None else [reading.model]
    words = [*reading.environment.values(), "vllm", "serve", *model, *reading.given.values()]
    variables = [name for name in reading.environment if name not in reading.notes]
    flags = [name for name in reading.given if name not in reading.notes]
    return ParsedBaseline(
        model=reading.model,
        functional=FunctionalSettings(**functional),
        levers=Levers(**levers),
        notes=tuple(reading.notes.values()),
        given=(*variables, *flags),
        functional_given=tuple(functional),
        shown=shlex.join(words),
    )


def _flags(reading: _Reading, words: Sequence[str]) -> Iterator[Flag]:
    """Flags in order; the first word that belongs to none is the model."""
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word.startswith(("\u2013", "\u2014")):  # a text editor's dash for two
            word = "--" + word[1:]
        if not is_flag(word):
            if reading.model is None:
                reading.model = word
            else:
                reading.notes["a word"] = "a further word without a flag is not kept"
            continue
        flag = named(word)
        name, values = _OTHER_NAMES.get(flag.name, flag.name), flag.values
        if not values:
            values = values_after(words[place:], _takes(name, reading.model))
            place += len(values)
        yield Flag(name=name, values=values)


def _takes(name: str, model: str | None) -> Takes:
    """What follows a flag; after an unknown one, everything once the model is known."""
    plain = switched_on(name)
    if plain in _KEPT_SWITCHES or plain in _SWITCHES or plain in _DEPLOYMENT_SWITCHES:
        return Takes.SWITCH
    if name.startswith("--no-"):
        return Takes.NOTHING
    if name in _KEPT or name == "--model" or name.startswith(SPECULATION):
        return Takes.ONE
    if name in _MANY:
        return Takes.MANY
    return Takes.ONE if model is None or name in _DEPLOYMENT else Takes.MANY


def _read_variable(reading: _Reading, name: str, value: str) -> None:
    space_gib = integer_of(name, (value,)) if name == KV_SPACE else 0
    if space_gib > 0:
        reading.kept["kv_cache_space_gib"] = space_gib
        reading.notes.pop(name, None)
        reading.environment[name] = f"{name}={space_gib}"
        return
    shape = shape_of((value,))
    reading.notes[name] = f"the environment variable {name} ({shape}) is not kept"
    reading.environment[name] = f"{name}=<{shape}>"


def _read(reading: _Reading, flag: Flag) -> None:
    name, values = flag.name, flag.values
    plain = switched_on(name)
    if name == "--model":
        reading.model = text_of(name, values)
    elif plain in _KEPT_SWITCHES:
        _read_switch(reading, flag, plain)
    elif name in _KEPT:
        _read_value(reading, flag)
    elif name.partition(".")[0] == SPECULATION:
        _read_drafts(reading, flag)
    elif name == "--enable-auto-tool-choice":
        reading.given[name] = name  # is set with the parser, and without one it does nothing
    elif name in _DEPLOYMENT or plain in _DEPLOYMENT_SWITCHES:
        reading.leave(name, values, _ELSEWHERE)
    else:
        reading.leave(name, values, _REASONS.get(name, _NEITHER))


def _read_value(reading: _Reading, flag: Flag) -> None:
    field_name, read = _KEPT[flag.name]
    value = read(flag.name, flag.values)
    if value is None:
        reading.kept.pop(field_name, None)
        reading.leave(flag.name, flag.values, "is not kept: vLLM's own value is used")
        return
    reading.keep(flag.name, field_name, value, f"{flag.name}={flag.values[0]}")


def _read_switch(reading: _Reading, flag: Flag, plain: str) -> None:
    off = f"--no-{plain.removeprefix('--')}"
    said = flag.values[0].lower() if flag.values else "true"
    if said not in {"true", "false"}:
        raise InvalidInput(plain, f"takes no value; write {plain} or {off}")
    value = (said == "true") is (flag.name == plain)
    reading.keep(plain, _KEPT_SWITCHES[plain], value, plain if value else off)


def _read_drafts(reading: _Reading, flag: Flag) -> None:
    """``--speculative-config '{...}'`` or, key by key, ``--speculative-config.method ngram``."""
    _, dot, key = flag.name.partition(".")
    if not dot:
        reading.drafts = json_object_of(SPECULATION, flag.values)
        return
    text = text_of(flag.name, flag.values)
    reading.drafts[key.replace("-", "_")] = int(text) if text.isdecimal() else text


def _finish_drafts(reading: _Reading) -> None:
    if not reading.drafts:
        return
    found = drafts_of(reading.drafts)
    if found.value is None:
        why = "is not kept: of its methods only ngram can be set so far"
        reading.leave(SPECULATION, ("{}",), why)
        return
    shown = f"{SPECULATION}={canonical_bytes(found.value).decode()}"
    reading.keep(SPECULATION, "speculative_config", found.value, shown)
    for key in found.left:
        label = key if re.fullmatch(r"\w{1,60}", key) else "a key"
        reading.notes[f"{SPECULATION}.{key}"] = f"{label} in {SPECULATION} is not kept"
