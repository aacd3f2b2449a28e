"""Lines that the dashboard shows of any model's layers."""

from dataclasses import replace

from dashboard.model_rows import layer_rows, weights_note
from tests.fakes.stored_values import HYBRID
from tests.fakes.values import MODEL


def test_every_kind_of_layer_has_a_line_of_its_own() -> None:
    """Window, latent cache, experts and recurrent state are named, and which half is not packed."""
    lines = [tuple(row.values()) for row in layer_rows(HYBRID)]
    windowed = "attention: 4 heads of 16, 2 for keys and values, window of 128 tokens"
    experts = "2 of 8 experts, each 32 wide, and a shared one of 32"

    assert lines == [
        ("3", windowed, "128 wide", "W4A16-zero"),
        (
            "2",
            "latent attention: 4 heads, 40 elements per token",
            experts,
            "W4A16-zero; mixing in bfloat16",
        ),
        ("1", "Mamba 2: 8 heads of 16, state of 16", "none", "W4A16-zero"),
        (
            "1",
            "gated delta net: 4 heads, state of 8 by 8",
            "128 wide, gated",
            "W4A16-zero; feed-forward in bfloat16",
        ),
    ]


def test_weights_as_saved_are_named_by_their_dtype() -> None:
    """Of a quantized checkpoint the two formats are told."""
    packed = replace(MODEL, weights=HYBRID.weights)

    assert layer_rows(MODEL)[0]["weights"] == "bfloat16"
    assert weights_note(MODEL) == "as saved, bfloat16"
    assert weights_note(packed) == "blocks in W4A16-zero, the rest in bfloat16"
