"""Deployments: what is served where, how to call it, a test question, stopping."""

import time

import streamlit as st

from advisor.recommender.phrases import settings_text
from advisor.states import DEPLOYMENT_OVER, DeploymentState
from advisor.units import seconds_text
from api.client import DeploymentView
from dashboard.app import run
from dashboard.listing import grid, newest, pick
from dashboard.session import act, client, readable_errors
from dashboard.settings import DashboardSettings
from dashboard.wording import SHORT_HASH, count_text, plain, time_text, words

ANSWER_TOKENS = 256


def page() -> None:
    """List and one deployment."""
    st.title("Deployments")
    st.caption("An approved configuration, served under its name through Rooftune's proxy.")
    deployments = newest(client().deployments)
    if not deployments:
        st.info("No deployment yet. Approve a recommendation and deploy it.")
        return
    chosen = pick("deployment", deployments, _title)
    # A serving engine can become unhealthy, so only the end of a deployment ends the looking.
    poll_s = None if chosen.state in DEPLOYMENT_OVER else DashboardSettings().dashboard_poll_s
    st.fragment(_state, run_every=poll_s)(chosen.id, chosen.state)
    _facts(chosen)
    if chosen.state is DeploymentState.SERVING:
        _call(chosen)
        _question(chosen)
    if chosen.state not in DEPLOYMENT_OVER and chosen.wanted != "stopped":
        _stop(chosen)
    with st.expander(f"All deployments ({len(deployments)})"):
        grid([_line(item) for item in deployments])


def _title(item: DeploymentView) -> str:
    return f"{item.name}, generation {item.generation}, {words(item.state)}"


def _line(item: DeploymentView) -> dict[str, str]:
    return {
        "name": item.name,
        "generation": str(item.generation),
        "state": words(item.state),
        "url": item.url,
        "settings": settings_text(item.config.overrides()),
        "restarts": str(item.restarts),
        "created": time_text(item.created_at),
        "ready": time_text(item.ready_at),
        "ended": time_text(item.ended_at),
    }


def _state(deployment_id: str, shown: DeploymentState) -> None:
    """Looks again until the deployment is over; another state redraws the page."""
    with readable_errors():
        found = client().deployment(deployment_id)
        if found.state is not shown:
            st.rerun()
        why = f": {plain(found.reason)}" if found.reason else ""
        match found.state:
            case DeploymentState.SERVING:
                st.success(f"Serving since {time_text(found.ready_at)}{why}.")
            case DeploymentState.FAILED | DeploymentState.UNHEALTHY:
                st.error(f"{words(found.state).capitalize()}{why}.")
            case state:
                st.info(f"{words(state).capitalize()}{why}.")


def _facts(item: DeploymentView) -> None:
    st.caption(
        f"{plain(settings_text(item.config.overrides()))}; configuration hash"
        f" `{item.config_hash[:SHORT_HASH]}`; device class {plain(item.device_class)};"
        f" {item.restarts} restarts"
    )


def _call(item: DeploymentView) -> None:
    st.subheader("Call it")
    st.caption("The endpoint speaks the OpenAI API; the key is a Rooftune API key.")
    st.code(item.url, language=None)
    shell, python = st.tabs(["curl", "Python"])
    with shell:
        st.code(curl_text(item), language="bash")
    with python:
        st.code(openai_text(item), language="python")


def curl_text(item: DeploymentView) -> str:
    """A call from a shell; the key comes from its environment."""
    body = f'{{"model": "{item.name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (
        f"curl {item.url}/chat/completions \\\n"
        '  -H "Authorization: Bearer $ROOFTUNE_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{body}'"
    )


def openai_text(item: DeploymentView) -> str:
    """The same with the `openai` package."""
    return (
        "import os\n\n"
        "from openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{item.url}", api_key=os.environ["ROOFTUNE_API_KEY"])\n'
        "answer = client.chat.completions.create(\n"
        f'    model="{item.name}", messages=[{{"role": "user", "content": "Hello"}}]\n'
        ")\n"
        "print(answer.choices[0].message.content)"
    )


def _question(item: DeploymentView) -> None:
    st.subheader("Ask it")
    with st.form("question", border=False):
        question = st.text_area("Question", height=80, max_chars=4000)
        asked = st.form_submit_button("Ask", type="primary")
    if not asked:
        return
    if not question.strip():
        st.error("Type a question first.")
        return
    with readable_errors(), st.spinner("Waiting for the answer"):
        begun = time.monotonic()
        answer = client().ask(item.url, question, model=item.name, max_tokens=ANSWER_TOKENS)
        took_s = time.monotonic() - begun
        with st.container(border=True):
            st.text(answer.text)
        st.caption(
            f"{count_text(answer.prompt_tokens)} prompt tokens,"
            f" {count_text(answer.output_tokens)} output tokens, {seconds_text(took_s)}"
            " with the way through the proxy"
            + ("; cut off at the limit" if answer.finish_reason == "length" else "")
        )


def _stop(item: DeploymentView) -> None:
    with st.popover("Stop"):
        st.write("Requests in flight are finished first; then the engine and its memory are freed.")
        if st.button("Stop this deployment", type="primary"):
            act(lambda: client().stop_deployment(item.id), f"{plain(item.name)} is stopping.")


if __name__ == "__main__":
    run(page)
