"""One browser session: whose key it uses, its client, and errors as a person reads them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import streamlit as st

from advisor.errors import RooftuneError, Unavailable
from api.client import ApiProblem, Client, PrincipalView
from dashboard.settings import DashboardSettings
from dashboard.wording import plain

CLIENT = "client"
PRINCIPAL = "principal"
KEY = "key"
SIGNED_OUT = "signed_out"
NEWS = "news"
ANY_PROJECT = ""


def client() -> Client:
    """The session's client; only pages that `app` runs after `connect` may ask for it."""
    found: Client = st.session_state[CLIENT]
    return found


def principal() -> PrincipalView:
    """Who this session is."""
    if PRINCIPAL not in st.session_state:
        st.session_state[PRINCIPAL] = client().whoami()
    found: PrincipalView = st.session_state[PRINCIPAL]
    return found


def connect(settings: DashboardSettings) -> None:
    """Make sure that the session has a client; asks for a key where none is configured."""
    if CLIENT in st.session_state:
        return
    configured = None if st.session_state.get(SIGNED_OUT) else settings.key()
    if configured is not None:
        with readable_errors():
            _sign_in(settings, configured, settings.project)
            return
    _ask_for_key(settings)
    st.stop()


def _sign_in(settings: DashboardSettings, key: str, project: str | None) -> None:
    opened = Client(settings.url, key, project=project)
    try:
        found = opened.whoami()
    except RooftuneError:
        opened.close()
        raise
    st.session_state[CLIENT] = opened
    st.session_state[PRINCIPAL] = found
    st.session_state[KEY] = key


def _ask_for_key(settings: DashboardSettings) -> None:
    st.title("Rooftune")
    st.write("Sign in with an API key. It is kept for this browser session only.")
    with st.form("sign_in", clear_on_submit=True, width=480):
        key = st.text_input("API key", type="password", autocomplete="off")
        asked = st.form_submit_button("Sign in", type="primary")
    st.caption(
        f"The service is {plain(settings.url)}. The first key is the one that `rooftune up` wrote"
        " to `admin.key` in its data folder; `rooftune key create` makes others."
    )
    if asked:
        with readable_errors():
            _sign_in(settings, key.strip(), settings.project)
            st.session_state.pop(SIGNED_OUT, None)
            st.rerun()


def sign_out() -> None:
    """Forget key and client."""
    opened = st.session_state.pop(CLIENT, None)
    if opened is not None:
        opened.close()
    for name in (PRINCIPAL, KEY):
        st.session_state.pop(name, None)
    st.session_state[SIGNED_OUT] = True


def sidebar(settings: DashboardSettings) -> None:
    """Who is signed in, the project asked about, signing out."""
    with st.sidebar:
        who = principal()
        st.caption(f"Signed in as **{plain(who.name)}**, {who.role}")
        if KEY in st.session_state and len(who.projects) > 1:
            _choose_project(settings, who)
        st.button("Sign out", on_click=sign_out, type="tertiary")


def _choose_project(settings: DashboardSettings, who: PrincipalView) -> None:
    titles = {item.id: item.name for item in who.projects}
    known = {ANY_PROJECT: "all projects", **titles}
    order = list(known)
    now = settings.project if settings.project in known else ANY_PROJECT

    def changed() -> None:
        before = client()
        with readable_errors():
            _sign_in(settings, st.session_state[KEY], st.session_state["project"] or None)
            before.close()

    st.selectbox(
        "Project",
        order,
        index=order.index(now or ANY_PROJECT),
        format_func=lambda identifier: known[identifier],
        key="project",
        on_change=changed,
    )


def say(text: str) -> None:
    """A message to show after the next run of the page."""
    st.session_state[NEWS] = text


def show_news() -> None:
    """The message left by the last action, once."""
    text = st.session_state.pop(NEWS, None)
    if text is not None:
        st.success(text)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Show a domain error with its remedy instead of raising it; what follows is not drawn."""
    try:
        yield
    except ApiProblem as problem:
        _show_problem(problem)
    except Unavailable as error:
        st.error(f"**Not reachable.** {plain(error.what)}")
        st.caption(f"What to do: {plain(error.remedy)}")
    except RooftuneError as error:
        st.error(plain(str(error)))


def _show_problem(problem: ApiProblem) -> None:
    st.error(f"**{plain(problem.title)}.** {plain(problem.detail)}")
    if problem.problem.errors:
        lines = [
            f"- `{item.field.replace('`', '')}`: {plain(item.message)}"
            for item in problem.problem.errors
        ]
        st.markdown("\n".join(lines))
    if problem.problem.found:
        st.markdown(f"Columns found: {_names(problem.problem.found)}")
    if problem.problem.accepted:
        st.markdown(f"Accepted: {_names(problem.problem.accepted)}")
    if problem.remedy:
        st.caption(f"What to do: {plain(problem.remedy)}")
    if problem.status == HTTPStatus.UNAUTHORIZED and CLIENT in st.session_state:
        st.button("Sign in again", on_click=sign_out)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name.replace('`', '')}`" for name in names)


def act(action: Callable[[], object], done: str) -> None:
    """Do what a button asks for; on success redraw the page with `done`, else show why not."""
    with readable_errors():
        action()
        say(done)
        st.rerun()
