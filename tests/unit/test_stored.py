"""Stored values come back equal, from this version's bytes and from earlier ones."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.canonical import canonical_bytes, digest
from advisor.errors import InvalidInput
from advisor.goal import Goal
from advisor.recommender.recommendation import Recommendation
from advisor.serving import ServingConfig
from db import stored
from db.stored import Stored, dump, load, schema_version
from db.tables import ALL
from tests.fakes.stored_values import EARLIER, STORED
from tests.fakes.values import BASELINE, GOAL, recommendation

SAVED = Path(__file__).resolve().parent.parent / "golden" / "stored"
KINDS: Mapping[str, object] = {type(value).__name__: value for value in STORED}


def saved_versions() -> list[tuple[str, int]]:
    """Kind and schema version of every saved file (``Goal.1.json``)."""
    found = (file.name.split(".") for file in sorted(SAVED.glob("*.json")))
    return [(kind, int(version)) for kind, version, _ in found]


def test_every_stored_column_has_a_value_here() -> None:
    """A new kind of stored value comes with a value to try it on and a saved file."""
    kinds = {
        column.type.cls.__name__
        for table in ALL.tables.values()
        for column in table.columns
        if isinstance(column.type, Stored)
    }

    assert kinds == set(KINDS)
    assert {kind for kind, _ in saved_versions()} == kinds


def test_every_version_of_every_kind_was_saved() -> None:
    """A raised schema version leaves the file of the one before, and the value that it meant."""
    versions = {(kind, n) for kind in KINDS for n in range(1, schema_version(kind) + 1)}
    current = {(kind, schema_version(kind)) for kind in KINDS}

    assert set(saved_versions()) == versions
    assert set(EARLIER) == versions - current


@pytest.mark.parametrize("value", STORED, ids=lambda value: type(value).__name__)
def test_what_was_stored_is_what_is_read(value: object) -> None:
    """Value -> bytes -> value is the identity, nested dataclasses and enums included."""
    read = load(type(value), dump(value))

    assert read == value
    assert dump(read) == dump(value)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_this_version_writes_what_it_saved(kind: str, *, update_golden: bool) -> None:
    """A changed form needs a new schema version and an upcaster from the saved one."""
    file = SAVED / f"{kind}.{schema_version(kind)}.json"
    if update_golden:
        file.write_bytes(dump(KINDS[kind]))
        pytest.fail(f"{file.name} was rewritten: look at the change and run again")

    assert dump(KINDS[kind]) == file.read_bytes()


@pytest.mark.parametrize("kind, version", saved_versions())
def test_rows_of_earlier_versions_are_read(kind: str, version: int) -> None:
    """What any released version wrote gives the value that it meant."""
    body = (SAVED / f"{kind}.{version}.json").read_bytes()

    meant = EARLIER.get((kind, version), KINDS[kind])

    assert json.loads(body)["schema_version"] == version
    assert load(type(meant), body) == meant


def test_an_approved_configuration_keeps_its_hash() -> None:
    """What version 1 hashed has that hash now: a deployment of it still finds its approval."""
    body = (SAVED / "Recommendation.1.json").read_bytes()
    bundle = load(Recommendation, body)
    written = json.loads(body)["value"]["ranked"]

    assert [item.config.hash for item in bundle.ranked] == [item["config_hash"] for item in written]
    assert len({item.config.hash for item in bundle.ranked}) == len(written)


def test_a_lever_of_a_later_version_changes_the_hash() -> None:
    """Set, it is part of what is approved; unset, it is not."""
    wider = [BASELINE.changed({"kv_cache_dtype": "fp8"}), BASELINE.changed({"quantization": None})]

    assert [item.hash == BASELINE.hash for item in wider] == [False, True]


def test_an_earlier_version_passes_through_every_upcaster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two steps, in order: a field that was renamed, then one whose unit changed."""

    def renamed(value: dict[str, object]) -> dict[str, object]:
        return {"concurrency": value["in_flight"], "ttft_p95_s": value["ttft_p95_ms"]}

    def in_seconds(value: dict[str, object]) -> dict[str, object]:
        limit_ms = value["ttft_p95_s"]
        assert isinstance(limit_ms, int)
        return {**value, "ttft_p95_s": limit_ms / 1000}

    upcasters: Mapping[str, tuple[stored.Upcaster, ...]] = {"Goal": (renamed, in_seconds)}
    monkeypatch.setattr(stored, "UPCASTERS", upcasters)
    value = {"in_flight": 8, "ttft_p95_ms": 1500}
    body = canonical_bytes({"kind": "Goal", "schema_version": 1, "value": value})

    assert load(Goal, body) == Goal(concurrency=8, ttft_p95_s=1.5)
    assert schema_version("Goal") == 3


def test_a_newer_version_is_refused() -> None:
    """An older program does not guess at what a newer one wrote."""
    body = canonical_bytes({"kind": "Goal", "schema_version": 99, "value": {}})

    with pytest.raises(InvalidInput, match="newer than this program"):
        load(Goal, body)


def test_another_kind_is_refused() -> None:
    """Bytes of a goal are not a configuration."""
    with pytest.raises(InvalidInput, match="holds a Goal"):
        load(ServingConfig, dump(GOAL))


def test_a_stored_value_is_checked_again_when_it_is_read() -> None:
    """A value that cannot be right does not come out of the database either."""
    body = json.loads(dump(GOAL))
    body["value"]["concurrency"] = 0

    with pytest.raises(InvalidInput, match=r"goal\.concurrency"):
        load(Goal, canonical_bytes(body))


def test_the_hash_survives_storing() -> None:
    """What a reviewer approved by its hash has that hash when it is read to be deployed."""
    bundle = recommendation()
    read = load(type(bundle), dump(bundle))

    assert read.hash == bundle.hash == digest(bundle)
    assert load(ServingConfig, dump(BASELINE)).hash == BASELINE.hash
