"""A planted text is found nowhere that it should not be: not in rows, files, logs or answers.

In redacted mode the promise is about what names a person or opens a door: the canary is planted in
those forms. Plain prose stays in it by design, as a replay needs it.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from advisor.traffic.trace import Privacy
from api.codec import json_text
from api.wire import ApiProblem
from tests.api.world import World
from tests.fakes.app_transport import AppTransport
from tests.fakes.haystack import files, found, rows

pytestmark = pytest.mark.postgres

PROSE = "canaryqxzword sings"
MAIL = "qxzfinch.byrd@birdcage.example"
CARD = "4111111111111111"
PHONE = "2079460958"
KEY = "sk-qxzcanary0123456789abcd"
ACCOUNT = "DE89 3704 0044 0532 0130 00"
NAME = "Qxzfinch"
DELICATE = (MAIL, NAME, CARD, PHONE, KEY[3:], ACCOUNT)
SAID = (
    f"{PROSE}. Dear Mr. {NAME},\nwrite to {MAIL} or call +44 {PHONE[:2]} {PHONE[2:6]} {PHONE[6:]},"
    f" pay from {ACCOUNT} or with {CARD}, use {KEY}. {NAME} knows."
)


def row(**fields: object) -> bytes:
    """One line of an upload."""
    return json.dumps(fields).encode() + b"\n"


def upload() -> bytes:
    """Good rows that hold the canary everywhere, a row that is refused, a line that is no JSON."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "send", "arguments": json.dumps({"to": MAIL, "text": SAID})},
    }
    asked = {"role": "user", "content": SAID}
    good = row(
        id=MAIL,
        session_id=MAIL,
        timestamp=1,
        messages=[
            asked,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": SAID},
        ],
        tools=[{"type": "function", "function": {"name": "send", "description": SAID}}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "description": SAID}},
        response=SAID,
    )
    plain = row(session_id=MAIL, timestamp=2, messages=[asked], response=SAID)
    refused = row(timestamp=3, messages=[{"content": SAID}], response=SAID)
    return good + plain * 3 + refused + b'{"messages": [' + SAID.replace("\n", " ").encode() + b"\n"


def problem_bodies(world: World, privacy: Privacy, target_id: str) -> Iterator[str]:
    """What is answered to files that cannot be used."""
    broken = b'{"prompt": "' + SAID.replace("\n", " ").encode() + b"\n"
    for content in (
        broken * 3,
        row(messages=SAID) * 3,
        SAID.encode(),
        f"a,b\n{PROSE},2\n".encode(),
    ):
        with pytest.raises(ApiProblem) as refused:
            world.client().upload_workload(
                content, name="bad", filename="bad.jsonl", privacy=privacy, target_id=target_id
            )
        assert 400 <= refused.value.status < 500
        yield json_text(refused.value.problem)


def answers(world: World, workload_id: str, target_id: str) -> Iterator[str]:
    """Everything that can be read of a workload, the metrics and the audit."""
    client = world.client()
    yield json_text(client.workload(workload_id))
    yield json_text(client.workloads())
    for target in (None, target_id):
        yield json_text(client.workload_summary(workload_id, target))
        yield json_text(client.forecast(workload_id, target))
    yield json_text(client.audit())
    key = {"authorization": f"Bearer {world.admin_key}"}
    with httpx.Client(
        transport=AppTransport(world.app), base_url="http://api.test", headers=key
    ) as plain:
        yield plain.get("/metrics").text
        yield plain.get(f"/v1/workloads/{workload_id}").text


def leaks(
    world: World, needles: tuple[str, ...], folder: Path, log: pytest.LogCaptureFixture
) -> set[str]:
    """Tables, files and logs that hold a needle."""
    lines = iter([("the log", log.text)])
    return (
        found(needles, rows(world.sessions)) | found(needles, files(folder)) | found(needles, lines)
    )


@pytest.mark.parametrize("privacy", [Privacy.REDACTED, Privacy.HASHED, Privacy.LENGTHS])
def test_a_canary_is_found_nowhere_unless_the_text_is_kept(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, privacy: Privacy
) -> None:
    """Rows, opened chunks and envelopes, files, log lines, problems, metrics, audit, exports."""
    caplog.set_level(logging.DEBUG)
    needles = DELICATE if privacy is Privacy.REDACTED else (*DELICATE, PROSE)
    target = world.ready_target(world.client())
    made = world.client().upload_workload(
        upload(), name="birds", filename="birds.jsonl", privacy=privacy, target_id=target.id
    )
    said = [*answers(world, made.id, target.id), *problem_bodies(world, privacy, target.id)]

    assert (made.requests, made.report.rejected, made.privacy) == (4, 2, privacy)
    assert found(needles, (("an answer", text) for text in said)) == set()
    assert leaks(world, needles, tmp_path, caplog) == set()


def test_a_raw_canary_is_in_the_chunks_only_and_after_the_purge_nowhere(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the upload was kept for a retry under its key, and with a study on it."""
    caplog.set_level(logging.DEBUG)
    needles = (*DELICATE, PROSE)
    client = world.client()
    target = world.ready_target(client)
    made = client.upload_workload(
        upload(), name="birds", filename="birds.jsonl", target_id=target.id, idempotency_key="k"
    )
    study = client.create_study(name="study", workload_id=made.id, target_id=target.id)
    world.recommended(study.id)
    client.cancel_study(study.id)
    before = leaks(world, needles, tmp_path, caplog)
    said = found(needles, (("an answer", text) for text in answers(world, made.id, target.id)))
    client.delete_workload(made.id, purge=True)
    left = client.workload(made.id)
    (bundle,) = client.recommendations(study.id).items

    assert before == {"workload_chunks", "token_chunks"}
    assert said == set()
    assert leaks(world, needles, tmp_path, caplog) == set()
    assert (left.name, left.requests, left.purged_at is not None) == ("birds", 4, True)
    assert left.summary.overall.prompt_tokens == made.summary.overall.prompt_tokens
    assert bundle.evidence_purged_at == client.study(study.id).evidence_purged_at == left.purged_at
    with pytest.raises(ApiProblem) as refused:
        client.create_study(name="again", workload_id=made.id, target_id=target.id)
    assert refused.value.status == 409
    assert "upload the traffic again" in str(refused.value.problem.remedy)
