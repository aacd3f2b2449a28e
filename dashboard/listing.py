"""Lists and tables that every page draws the same way."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import streamlit as st

from api.client import Page, every
from dashboard.wording import plain

MOST = 200


class Named(Protocol):
    """Anything with an identifier and a name."""

    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=Named)
T = TypeVar("T")


def newest(page_of: Callable[..., Page[T]], **options: str | None) -> list[T]:
    """The newest items of a list route, at most `MOST`, with a note where there may be more."""
    items = list(islice(every(page_of, **options), MOST))
    if len(items) == MOST:
        st.caption(f"The newest {MOST} are shown.")
    return items


def pick(noun: str, items: Sequence[N], title: Callable[[N], str]) -> N:
    """The item that the user looks at; it is part of the page's address.

    `items` is not empty. An address that names none of them shows the first.
    """
    ids = [item.id for item in items]
    titles = {item.id: title(item) for item in items}
    asked = st.query_params.get(noun)
    chosen = st.selectbox(
        noun.capitalize(),
        ids,
        index=ids.index(asked) if asked in titles else 0,
        format_func=lambda identifier: titles[identifier],
    )
    if chosen != asked and (asked is not None or chosen != ids[0]):
        st.query_params[noun] = chosen
    return items[ids.index(chosen)]


def show(noun: str, identifier: str) -> None:
    """Make the item the one that `pick` finds on the next run."""
    st.query_params[noun] = identifier


def table(rows: Sequence[Mapping[str, str]]) -> None:
    """A short table whose cells wrap; cell text is never Markdown."""
    if rows:
        escaped = [{plain(name): plain(cell) for name, cell in row.items()} for row in rows]
        st.table(escaped, border="horizontal", hide_index=True)


def grid(rows: Sequence[Mapping[str, str]]) -> None:
    """A long table to scroll, search and copy from."""
    if rows:
        st.dataframe([dict(row) for row in rows], hide_index=True)


def figure(label: str, value: str, note: str = "") -> None:
    """One number with where it comes from below it."""
    with st.container(border=True, height="stretch"):
        st.markdown(f":small[{label}]")
        st.markdown(f"##### {plain(value)}")
        if note:
            st.caption(plain(note))
