"""The page of workloads with a planted client that reads files as the service does."""

import re
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from advisor.errors import InvalidInput
from advisor.traffic.trace import Privacy
from api.client import WorkloadView
from dashboard.upload import columns_of
from tests.dashboard.conftest import Opened
from tests.fakes import views
from tests.fakes.planted_client import PlantedClient
from tests.fakes.traffic import WHOLE_REPORT, whole_summary

GOOD = b'{"messages": [{"role": "user", "content": "one two"}], "response": "three"}\n'
BAD = b'{"messages": 7}\n'
LENGTHS = b"timestamp,prompt_tokens,completion_tokens\n0,12,3\n2,40,9\n2.5,30,7\n"


def submit(at: AppTest, content: bytes, filename: str) -> AppTest:
    """Upload a file through the form."""
    at.file_uploader[0].upload(filename, content)
    return next(item for item in at.button if item.label == "Upload").click().run()


def whole() -> WorkloadView:
    """An upload of which everything is known."""
    made = views.workload(GOOD, name="whole", filename="whole.jsonl")
    return replace(made, report=WHOLE_REPORT, summary=whole_summary())


def shown(at: AppTest) -> str:
    """All text and table cells of the page."""
    texts = [item.value for kind in (at.markdown, at.caption, at.info) for item in kind]
    cells = [item.value.to_csv() for kind in (at.table, at.dataframe) for item in kind]
    return "\n".join([*texts, *cells]).replace("\\", "")


def test_an_upload_lists_rejected_lines_with_their_numbers(opened: Opened) -> None:
    """The report names line, field and reason."""
    client = PlantedClient()
    at = submit(opened(client, "workloads"), GOOD + BAD + GOOD, "my log (1).jsonl")

    assert not at.exception
    assert client.asked[0][1]["name"] == "my log -1-.jsonl"
    assert "2 of 3 rows" in at.success[0].value
    rejects = next(item.value for item in at.dataframe if "reason" in item.value)
    assert list(rejects["line"]) == ["2"]
    assert list(rejects["field"]) == ["messages"]


def test_a_file_without_a_usable_row_is_refused_with_the_columns(opened: Opened) -> None:
    """Columns found and columns accepted."""
    client = PlantedClient()
    at = submit(opened(client, "workloads"), b"colour,size\nred,3\n", "traffic.csv")

    assert not at.exception
    assert "No usable rows" in at.error[0].value
    assert "`colour`" in shown(at)
    assert "Accepted:" in shown(at)
    assert client.uploads == []


def test_nothing_is_uploaded_without_a_file(opened: Opened) -> None:
    """The form says so itself."""
    client = PlantedClient()
    at = opened(client, "workloads")
    next(item for item in at.button if item.label == "Upload").click().run()

    assert at.error[0].value == "Choose a file first."
    assert client.asked == []


def test_what_an_upload_cannot_say_is_not_measurable_and_never_zero(opened: Opened) -> None:
    """Lengths only: no text, so no prefix sharing and no n-gram acceptance."""
    upload = views.workload(LENGTHS, name="lengths", filename="lengths.csv")
    at = opened(PlantedClient(uploads=[upload]), "workloads")

    assert not at.exception
    assert upload.summary.overall.prefix_sharing is None
    assert "not measurable from this upload: the upload holds lengths only" in shown(at)
    assert not re.search(r"(?<![+\d])0\.0 %", shown(at))  # a change of +0.0 % is a bound


def test_a_target_counts_the_tokens(opened: Opened) -> None:
    """With its tokenizer sharing and acceptance get a number with interval and source."""
    upload = views.workload(GOOD, name="text", filename="text.jsonl")
    at = opened(PlantedClient(uploads=[upload], known_targets=[views.target()]), "workloads")
    before = shown(at)
    next(item for item in at.selectbox if item.label == "Tokens counted with").select(
        views.target().id
    ).run()

    assert not at.exception
    assert "needs a target whose tokenizer" in before
    assert "60.0 % (50.0 to 70.0)" in shown(at)
    assert "measured here: planted" in shown(at)


def test_a_class_label_is_text_and_not_markup(opened: Opened) -> None:
    """A file's own words cannot put a picture or a link on the page."""
    label = "![x](http://example.org/x.png)"
    rows = b"timestamp,prompt_tokens,completion_tokens,class\n" + b"".join(
        f"{second},12,3,{label}\n{second}.5,10,3,b\n".encode() for second in range(3)
    )
    upload = views.workload(rows, name="classes", filename="classes.csv")
    at = opened(PlantedClient(uploads=[upload]), "workloads")

    assert not at.exception
    assert upload.summary.classes[0].label == label
    assert label in shown(at)
    assert all(label not in item.value for kind in (at.markdown, at.info) for item in kind)
    assert all(label not in item.value.to_csv() for item in at.table)


def test_deleting_asks_the_service(opened: Opened) -> None:
    """And the list is empty afterwards."""
    client = PlantedClient(uploads=[views.workload(GOOD, name="text", filename="a.jsonl")])
    at = opened(client, "workloads")
    next(item for item in at.button if item.label == "Delete this workload").click().run()

    assert client.uploads == []
    assert "deleted" in at.success[0].value


def test_a_purge_keeps_the_figures_and_says_since_when(opened: Opened) -> None:
    """The sample stays in the list with its figures; there is nothing left to purge."""
    client = PlantedClient(uploads=[whole()])
    at = opened(client, "workloads")
    next(item for item in at.button if item.label == "Purge this workload").click().run()

    assert not at.exception
    assert client.asked[-1] == (
        "delete_workload",
        {"workload_id": client.uploads[0].id, "purge": True},
    )
    assert "purged" in shown(at)
    assert "only the figures are left" in shown(at)
    assert "Purge this workload" not in [item.label for item in at.button]


def test_every_picture_of_a_whole_upload_is_drawn(opened: Opened) -> None:
    """Nine from the service and the boxes of prompts and outputs, with what they say in words."""
    at = opened(PlantedClient(uploads=[whole()]), "workloads")
    text = shown(at)

    assert not at.exception
    assert len(at.get("plotly_chart")) == 11
    assert "An unlimited cache serves 50.0 % (40.0 to 60.0)" in text
    assert "Long prompts with short answers" in text
    assert "ask for JSON or a schema" in text
    assert "have a prompt that occurs more than once" in text
    assert "move what changes to the end" in text


def test_how_a_file_was_read_is_told(opened: Opened) -> None:
    """Format, compression, columns, the reading chosen, failed requests."""
    text = shown(opened(PlantedClient(uploads=[whole()]), "workloads"))

    assert "OpenAI chat log (openai-chat), utf-8, gzip" in text
    assert "5 failed" in text
    assert "session_lengths: cumulative" in text
    assert "arrival_s" in text
    assert "408" in text


def test_the_privacy_of_a_sample_and_what_it_rules_out_are_told(opened: Opened) -> None:
    """Mode, limits, until when it is kept."""
    held = replace(
        whole(),
        privacy=Privacy.HASHED,
        limits=("nothing can be replayed",),
        expires_at=views.BEGIN,
    )
    text = shown(opened(PlantedClient(uploads=[held]), "workloads"))

    assert "hashed" in text
    assert "- nothing can be replayed" in text
    assert "then purged" in text


def test_the_options_of_the_form_reach_the_service(opened: Opened) -> None:
    """Privacy, retention, columns, unit of times, reading of turns."""
    client = PlantedClient()
    at = opened(client, "workloads")
    at.radio[0].set_value(Privacy.REDACTED)
    at.number_input[0].set_value(30)
    at.text_area[0].set_value("prompt = question\n")
    for label, value in (("Unit of times", "ms"), ("Lengths of a turn", "per_turn")):
        next(item for item in at.selectbox if item.label == label).set_value(value)
    submit(at, GOOD, "log.jsonl")
    told = client.asked[0][1]

    assert not at.exception
    assert told["privacy"] is Privacy.REDACTED
    assert told["retention_days"] == 30
    assert told["columns"] == {"prompt": "question"}
    assert (told["time_unit"], told["session_lengths"], told["format"]) == ("ms", "per_turn", None)


def test_a_mapping_that_is_none_is_an_error_of_the_form(opened: Opened) -> None:
    """Nothing is sent; the line is named."""
    client = PlantedClient()
    at = opened(client, "workloads")
    at.text_area[0].set_value("prompt")
    submit(at, GOOD, "log.jsonl")

    assert "our" in at.error[0].value
    assert client.uploads == []


def test_a_mapping_is_read_line_by_line() -> None:
    """Blank lines do not count; a name may hold an equals sign."""
    assert columns_of("prompt = q\n\noutput_tokens=a=b") == {"prompt": "q", "output_tokens": "a=b"}
    with pytest.raises(InvalidInput):
        columns_of("=x")
