"""`rooftune workload`: a file inspected here, and a sample uploaded with its options."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from api.cli import main
from tests.api.world import TWO_REQUESTS, World
from tests.fakes.model_folder import write_model_folder

Run = Callable[..., tuple[int, str, str]]
OWN_NAMES = b"n_in,n_out,when\n100,10,0\n200,40,500\n50,5,1500\n"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command on an empty data folder: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["--data-dir", str(tmp_path / "data"), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model folder without weights."""
    return write_model_folder(tmp_path / "model", CONFIG)


def test_a_model_folder_adds_what_needs_a_tokenizer(run: Run, model: str, tmp_path: Path) -> None:
    """Reuse and drafts, and the model's own limit; without one it says what would help."""
    path = tmp_path / "two.jsonl.gz"
    path.write_bytes(gzip.compress(TWO_REQUESTS))
    counted = json.loads(run("workload", "inspect", str(path), "--model", model, "--json")[1])
    bare = run("workload", "inspect", str(path))[1]
    summary = counted["summary"]

    assert counted["report"]["compression"] == "gzip"
    assert summary["count_source"] == "tokenised"
    assert summary["overall"]["prefix_sharing"] is not None
    assert 512 in [item["max_model_len"] for item in summary["fits"]]
    assert "--model FOLDER counts tokens" in bare


def test_what_a_file_leaves_open_is_given_by_hand(run: Run, tmp_path: Path) -> None:
    """Names of columns, the unit of times, a length limit: all are told of."""
    path = tmp_path / "own.csv"
    path.write_bytes(OWN_NAMES)
    names = ("prompt_tokens=n_in", "output_tokens=n_out", "timestamp=when")
    given = [word for name in names for word in ("--columns", name)]
    given += ["--time-unit", "ms", "--max-model-len", "200"]
    code, out, _ = run("workload", "inspect", str(path), *given, "--json")
    text = run("workload", "inspect", str(path), *given)[1]
    held = json.loads(out)

    assert code == 0
    assert held["summary"]["arrivals"]["span_s"] == 1.5
    assert held["report"]["columns"]["prompt_tokens"] == "n_in"
    assert [
        item["fitting"] for item in held["summary"]["fits"] if item["max_model_len"] == 200
    ] == [2]
    assert "prompt_tokens=n_in" in text


@pytest.mark.parametrize(
    "given",
    [
        ("--columns", "n_in"),
        ("--columns", "nonsense=n_in"),
        ("--time-unit", "weeks"),
        ("--session-lengths", "maybe"),
        ("--format", "nonsense"),
        ("--block-size", "0"),
    ],
)
def test_a_wrong_option_is_wrong_usage(run: Run, tmp_path: Path, given: tuple[str, ...]) -> None:
    """Exit 2, before anything is read."""
    path = tmp_path / "lengths.csv"
    path.write_bytes(b"prompt_tokens,output_tokens\n1,2\n3,4\n")

    assert run("workload", "inspect", str(path), *given)[0] == 2


@pytest.mark.postgres
def test_an_upload_with_options_is_shown_with_its_privacy(
    run: Run, world: World, address: str, tmp_path: Path
) -> None:
    """The mode, what it rules out, until when it is kept; a purge leaves the figures."""
    path = tmp_path / "two.jsonl"
    path.write_bytes(TWO_REQUESTS)

    def ask(*arguments: str) -> str:
        code, out, err = run("--url", address, "--key", world.admin_key, "workload", *arguments)

        assert code == 0, err
        return out

    given = ("--privacy", "redacted", "--retention-days", "30", "--format", "jsonl")
    made = json.loads(ask("upload", str(path), *given, "--json"))
    shown = " ".join(ask("show", made["id"]).split())
    done = ask("delete", made["id"])

    assert made["privacy"] == "redacted"
    assert made["expires_at"] is not None
    assert "privacy redacted" in shown
    assert "not possible" in shown
    assert "then purged" in shown
    assert "2 requests, 2 with text" in shown
    assert done == f"deleted {made['id']}\n"
