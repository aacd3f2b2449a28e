"""The whole job in a real browser: what a person sees of upload, study, review and deployment."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.client import Client
from tests.fakes.agent_site import TRUTH, write_model
from tests.fakes.browser import Dashboard, chromium, dashboard
from tests.fakes.whole_service import ROOT, WholeService, soon, whole_service

# The limits are for a machine that does much else meanwhile.
pytestmark = [
    pytest.mark.browser,
    pytest.mark.postgres,
    pytest.mark.processes,
    pytest.mark.timeout(900),
]
TRAFFIC = ROOT / "samples" / "traffic.jsonl"
REGISTERED_WITHIN_S = 60.0
TARGET_WITHIN_S = 60.0
STUDY_WITHIN_S = 400.0
SERVING_WITHIN_S = 60.0
LARGEST_PICTURE_BYTES = 200_000
PAGES = ("workload", "study", "recommendation", "deployment")


@pytest.fixture
def pictures(pytestconfig: pytest.Config, tmp_path: Path) -> Path:
    """Where the screenshots go: the folder of `--screenshots`, else one that nobody keeps."""
    asked = pytestconfig.getoption("--screenshots")
    folder = tmp_path if asked is None else Path(asked)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WholeService]:
    """A service on a planted engine, whose dashboard asks for a key, once its agent is there."""
    chromium()
    model = write_model(tmp_path / "models" / "demo")
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({**TRUTH, "start_s": 0.2}))
    settings = {
        "KEY_FILE": str(tmp_path / "no-such.key"),
        "DEMO_MODEL_DIR": str(model),
        "PLANTED": str(truth),
        "HOST_NAME": "planted",
        "DEVICE_CLASS": "planted-cpu",
        "CHECK_NEIGHBOURS": "false",
        "MICROBENCH_S": "0.1",
        "OUTPUT_TOKEN_CAP": "24",
        "POLL_S": "0.5",
    }
    with whole_service(settings) as started:
        started.ready()
        with Client(started.api, started.key) as client:
            there = soon(lambda: bool(client.devices().items), REGISTERED_WITHIN_S)
        assert there, started.logs()
        yield started
    shutil.rmtree(tmp_path / "models")


def sign_in(shown: Dashboard, key: str) -> None:
    """A wrong key is refused in words; the first admin's opens the pages."""
    shown.fill("API key", "rt_not_a_key")
    shown.submit("Sign in")
    shown.shows("What to do")
    shown.fill("API key", key)
    shown.submit("Sign in")
    shown.heading("Workloads")


def upload(shown: Dashboard) -> None:
    """The sample traffic; its summary says how many requests it has and how long they are."""
    shown.page.locator("input[type=file]").set_input_files(TRAFFIC)
    shown.shows(TRAFFIC.name)
    shown.submit("Upload")
    rows = len(TRAFFIC.read_text(encoding="utf-8").splitlines())
    shown.shows(f"Read {rows:,} of {rows:,} rows")
    shown.heading("Lengths")
    shown.shows("Burstiness")
    shown.heading("What the text promises")


def make_target(shown: Dashboard) -> None:
    """The demo model becomes a target that is ready for studies."""
    shown.go("Targets")
    shown.fill("Name", "demo-target")
    shown.submit("Create")
    shown.shows("Ready for studies.", TARGET_WITHIN_S)
    shown.heading("Model arithmetic")


def count_with_target(shown: Dashboard) -> None:
    """With a tokenizer, prefix sharing and acceptance of drafts are in the summary."""
    shown.go("Workloads")
    shown.choose("Tokens counted with", "demo-target")
    shown.shows("tokens per step")
    shown.shows("blocks of")


def study(shown: Dashboard) -> None:
    """Started from the form, watched while it runs, until it is done."""
    shown.go("Studies")
    shown.fill("Name", "browser-study")
    shown.fill("Requests in flight", "4")
    shown.fill("Requests per load point", "8")
    shown.fill("Highest load of the ladder", "16")
    shown.submit("Start")
    shown.shows("is queued.")
    shown.shows("measuring", STUDY_WITHIN_S)
    shown.shows("Done, ended", STUDY_WITHIN_S)


def review(shown: Dashboard) -> None:
    """The recommendation is opened from its study, and its first configuration approved."""
    shown.main.get_by_role("link", name="Open the recommendation").click()
    shown.heading("Ranked configurations")
    shown.heading("Verdicts")
    shown.photograph("recommendation")
    shown.press("Approve")
    shown.shows("was approved.")


def deploy(shown: Dashboard) -> None:
    """The approved configuration is served under a name."""
    shown.fill("Name of the endpoint", "assistant")
    shown.submit("Deploy")
    shown.shows("is being deployed")
    shown.go("Deployments")
    shown.shows("Serving since", SERVING_WITHIN_S)


def ask(shown: Dashboard) -> str:
    """A question typed on the page; the answer's text."""
    shown.fill("Question", "What is a roofline?")
    shown.submit("Ask")
    shown.shows("with the way through the proxy")
    answer: str = shown.main.get_by_test_id("stText").last.inner_text()
    return answer


def test_the_whole_job_can_be_done_in_a_browser(site: WholeService, pictures: Path) -> None:
    """From the key to an answer; no page broke, and none asked an address outside this machine."""
    with dashboard(site.dashboard, pictures) as shown:
        sign_in(shown, site.key)
        upload(shown)
        make_target(shown)
        count_with_target(shown)
        shown.photograph("workload")
        study(shown)
        shown.photograph("study")
        review(shown)
        deploy(shown)
        answer = ask(shown)
        shown.photograph("deployment")
        taken = [
            pictures / f"{name}-{scheme}.png" for name in PAGES for scheme in ("light", "dark")
        ]

        assert answer.strip()
        assert shown.errors == []
        assert shown.strangers == []
    assert [path.name for path in taken if not path.is_file()] == []
    assert [path.name for path in taken if path.stat().st_size > LARGEST_PICTURE_BYTES] == []
