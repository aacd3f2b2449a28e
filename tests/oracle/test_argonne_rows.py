"""Argonne's rows as the validation reads them: admitted, split and run as stated."""

from pathlib import Path

import pytest

from advisor.roofline.calibration.offline_batch import offline_batch
from tests.validate.argonne.comparison import batch_split, card_rows, half_split, violations
from tests.validate.argonne.rows import CARDS, MODELS, admitted_rows, limits


def test_rows_are_those_of_the_readme(shared: Path) -> None:
    """350 of 370 unflagged rows: the twenty beyond 2,048 positions are left out."""
    rows = admitted_rows(shared / "data" / "measurements")
    by_card = {card.name: sum(row.card is card for row in rows) for card in CARDS.values()}

    assert by_card == {"A100-40": 61, "H100": 109, "GH200": 180}
    assert all(2 * row.tokens <= (row.model.max_position_embeddings or 0) for row in rows)


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("meta-llama/Meta-Llama-3-8B", 8_030_261_248),
        ("mistralai/Mistral-7B-v0.1", 7_241_732_096),
    ],
)
def test_sizes_give_the_published_parameter_counts(name: str, parameters: int) -> None:
    """Without biases, which the other models have and no step time shows."""
    assert MODELS[name].parameters == parameters


def test_splits_keep_repeats_together_and_test_apart(shared: Path) -> None:
    """No condition on both sides, no row on neither; the second split is by batch."""
    for card in card_rows(admitted_rows(shared / "data" / "measurements")):
        assert violations(card) == 0
        for split in (half_split(card), batch_split(card)):
            trained = {card.rows[i].condition for i in split.trained}
            tested = {card.rows[i].condition for i in split.tested}
            assert not trained & tested
            assert sorted(split.trained + split.tested) == list(range(len(card.rows)))
        assert all(card.rows[i].batch <= 16 for i in batch_split(card).trained)


def test_the_cliff_of_the_small_card_is_in_the_runs() -> None:
    """Llama-2-7B on 40 GB: 64 requests of 512 and 512 need more cache than there is, 32 do not."""
    model, card = MODELS["meta-llama/Llama-2-7b-hf"], CARDS["Nvidia A100 GPU"]
    room = limits(model, card)
    waves = [
        {stretch.decodes for stretch in offline_batch(batch, 512, 512, room) if stretch.decodes}
        for batch in (32, 64)
    ]

    assert waves[0] == {32}
    assert max(waves[1]) == 64
    assert len(waves[1]) > 1
