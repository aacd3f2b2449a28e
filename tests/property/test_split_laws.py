"""Laws of the split into what a study measures on and what its confirmation is measured on."""

from hypothesis import given
from hypothesis import strategies as st

from advisor.traffic.sampling.sample import fitting_places, probe_subset
from advisor.traffic.sampling.split import HELD_OUT_SHARE, held_out
from advisor.traffic.trace import Request, RequestKind, TokenColumns

LIMIT = 12
Upload = tuple[tuple[Request, ...], TokenColumns]
_row = st.tuples(
    st.none() | st.sampled_from("stuvw"),
    st.integers(0, 12),
    st.integers(1, 16),
    st.sampled_from("ab") | st.none(),
)


@st.composite
def uploads(draw: st.DrawFn) -> Upload:
    """Requests that share sessions and prompts now and then; some do not fit."""
    rows = draw(st.lists(_row, min_size=1, max_size=40))
    requests = tuple(
        Request(
            id=f"r{place}",
            index=place,
            line=place,
            kind=RequestKind.COMPLETION,
            label=label,
            session=session,
            prompt=f"prompt {text}",
            max_tokens=1,
        )
        for place, (session, text, _, label) in enumerate(rows)
    )
    columns = TokenColumns.of(
        tokenizer_digest="t",
        template_digest="c",
        prompts=tuple((text,) * length for _, text, length, _ in rows),
        outputs=(None,) * len(rows),
    )
    return requests, columns


def split(upload: Upload, seed: int) -> frozenset[int]:
    return held_out(*upload, seed=seed, max_prompt_tokens=LIMIT)


@given(uploads(), st.integers(0, 5))
def test_no_session_and_no_equal_prompt_is_on_both_sides(upload: Upload, seed: int) -> None:
    """What the confirmation sees, nothing else has seen."""
    requests, columns = upload
    held = split(upload, seed)
    sides = [held, frozenset(range(len(requests))) - held]
    sessions, prompts, tokens = (
        [{look(place) for place in side} - {None} for side in sides]
        for look in (
            lambda place: requests[place].session,
            lambda place: requests[place].prompt,
            lambda place: columns.prompts[place],
        )
    )

    assert not sessions[0] & sessions[1]
    assert not prompts[0] & prompts[1]
    assert not tokens[0] & tokens[1]


@given(uploads(), st.integers(0, 5))
def test_equal_seeds_give_equal_splits_and_never_hold_out_more_than_twice_the_share(
    upload: Upload, seed: int
) -> None:
    """A group that would overshoot the share by more than it lacks stays."""
    fitting = fitting_places(*upload, max_prompt_tokens=LIMIT)
    held = split(upload, seed) & fitting

    assert split(upload, seed) & fitting == held
    assert len(held) <= 2 * HELD_OUT_SHARE * len(fitting)


@given(uploads(), st.integers(0, 5))
def test_the_probe_subset_and_the_held_out_one_are_disjoint(upload: Upload, seed: int) -> None:
    """Drawn with the split they share no request, and together they reach all that fit."""
    fitting = fitting_places(*upload, max_prompt_tokens=LIMIT)
    held = split(upload, seed)
    sides: list[int] = []
    for out in (held, frozenset(range(len(upload[0]))) - held):
        if fitting - out:
            sides += probe_subset(
                *upload,
                size=40,
                seed=seed,
                max_prompt_tokens=LIMIT,
                mean_prompt_limit=None,
                without=out,
            ).places

    assert sorted(sides) == sorted(fitting)
