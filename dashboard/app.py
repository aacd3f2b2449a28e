"""The dashboard: `streamlit run dashboard/app.py`. It knows the service by `api.client` only."""

from collections.abc import Callable

import streamlit as st

from dashboard import session
from dashboard.settings import DashboardSettings

# Set while `main` runs a page.
INSIDE = "inside_main"


def main() -> None:
    """Sign in, then run the page of the address."""
    # Without an icon of its own the browser would fetch the page's symbol from a font host.
    st.set_page_config(page_title="Rooftune", page_icon="📈", layout="wide")
    pages = [
        st.Page("pages/workloads.py", title="Workloads", icon=":material/upload_file:"),
        st.Page("pages/targets.py", title="Targets", icon=":material/memory:"),
        st.Page("pages/studies.py", title="Studies", icon=":material/science:"),
        st.Page("pages/recommendation.py", title="Recommendation", icon=":material/fact_check:"),
        st.Page("pages/deployments.py", title="Deployments", icon=":material/rocket_launch:"),
    ]
    page = st.navigation(pages)
    settings = DashboardSettings()
    session.connect(settings)
    session.show_news()
    with session.readable_errors():
        session.sidebar(settings)
        st.session_state[INSIDE] = True
        try:
            page.run()
        finally:
            st.session_state.pop(INSIDE, None)


def run(page: Callable[[], None]) -> None:
    """The body of a page's script.

    Until some session has called `st.navigation`, Streamlit takes the folder `pages` for scripts
    that stand alone and runs the one in the address without `main`, so without anybody signed in.
    """
    if INSIDE in st.session_state:
        page()
    else:
        main()


if __name__ == "__main__":
    main()
