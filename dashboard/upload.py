"""The form that uploads a traffic file: what to keep of it, how to read it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from advisor.errors import InvalidInput
from advisor.traffic.formats.options import SESSION_LENGTHS, TIME_UNITS
from advisor.traffic.formats.registry import FORMATS
from advisor.traffic.phrases import PRIVACY_WORDS
from advisor.traffic.trace import Privacy
from api.client import TargetView
from dashboard.listing import show
from dashboard.session import client, readable_errors, say
from dashboard.wording import plain

LARGEST_MIB = 512
LONGEST_DAYS = 36_500
TYPES = ["jsonl", "json", "ndjson", "csv", "tsv", "txt", "log", "parquet", "gz", "zst"]
FOUND = ""
NO_TARGET = ""
COUNTED_WITH = "counted_with"
SESSION_WORDS: Mapping[str, str] = {
    "cumulative": "hold the history before it",
    "per_turn": "hold the new turn alone",
}
# What the API takes as a name; a file's own name is cut down to it.
_FOREIGN = re.compile(r"[^A-Za-z0-9 ._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the form says beside file, name and target."""

    privacy: Privacy
    retention_days: int | None
    columns: str
    time_unit: str | None
    session_lengths: str | None
    format: str | None


def upload_form(targets: Sequence[TargetView]) -> None:
    """File, name, target and options; the upload is the one shown afterwards."""
    names = {NO_TARGET: "none: use the counts in the file"}
    names |= {item.id: item.name for item in targets}
    with st.form("upload", border=False):
        file = st.file_uploader(
            "Traffic file (a log, an export or a trace; gzip and Zstandard too)",
            type=TYPES,
            max_upload_size=LARGEST_MIB,
        )
        name = st.text_input("Name", max_chars=80, placeholder="the file's name")
        target = st.selectbox(
            "Count tokens with the tokenizer of a target",
            list(names),
            format_func=lambda identifier: names[identifier],
            help="Prefix reuse and acceptance of drafts need a tokenizer to split the text.",
        )
        with st.expander("Privacy and how to read the file"):
            asked = _options()
        sent = st.form_submit_button("Upload", type="primary")
    if not sent:
        return
    if file is None:
        st.error("Choose a file first.")
        return
    with readable_errors(), st.spinner("Reading the file"):
        made = client().upload_workload(
            file.getvalue(),
            name=name.strip() or _name_of(file.name),
            filename=file.name,
            target_id=target or None,
            privacy=asked.privacy,
            retention_days=asked.retention_days,
            columns=columns_of(asked.columns),
            time_unit=asked.time_unit,
            session_lengths=asked.session_lengths,
            format=asked.format,
        )
        show("workload", made.id)
        st.session_state[COUNTED_WITH] = target
        say(f"Read {made.report.accepted:,} of {made.report.rows:,} rows of {plain(file.name)}.")
        st.rerun()


def _options() -> _Asked:
    """Privacy first, then what a file may leave open."""
    modes = list(Privacy)
    privacy = st.radio(
        "What the service keeps of the text",
        modes,
        format_func=str,
        captions=[PRIVACY_WORDS[mode] for mode in modes],
    )
    days = st.number_input(
        "Purge after so many days (0: as the service is set)",
        min_value=0,
        max_value=LONGEST_DAYS,
        value=0,
        help="The text and everything made of it are deleted then; the figures stay.",
    )
    cells = st.columns(3)
    formats = {FOUND: "found by content"} | {item.name: item.title for item in FORMATS}
    form = cells[0].selectbox("Format", list(formats), format_func=lambda key: formats[key])
    unit = cells[1].selectbox(
        "Unit of times", [FOUND, *TIME_UNITS], format_func=lambda key: key or "found by content"
    )
    lengths = cells[2].selectbox(
        "Lengths of a turn",
        [FOUND, *SESSION_LENGTHS],
        format_func=lambda key: SESSION_WORDS.get(key, "found by content"),
    )
    columns = st.text_area(
        "Columns, where their names are not understood (one per line: our=theirs)",
        placeholder="prompt_tokens=n_in\noutput_tokens=n_out\ntimestamp=created",
        height=90,
    )
    return _Asked(
        privacy=privacy,
        retention_days=int(days) or None,
        columns=columns,
        time_unit=unit or None,
        session_lengths=lengths or None,
        format=form or None,
    )


def columns_of(text: str) -> dict[str, str]:
    """``our=theirs`` per line as a mapping."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        ours, equals, theirs = (part.strip() for part in line.partition("="))
        if not line.strip():
            continue
        if not (ours and equals and theirs):
            raise InvalidInput("columns", f"{line.strip()!r} is not our=theirs")
        found[ours] = theirs
    return found


def _name_of(filename: str) -> str:
    return _FOREIGN.sub("-", filename).lstrip(" ._-")[:80] or "traffic"
