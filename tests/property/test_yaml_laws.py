"""YAML of ours is the JSON value to a reader that was not written by us."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.canonical import Json
from api.documents.yaml_text import as_yaml

texts = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.sampled_from(["yes", "null", "1e3", "2026-11-30", "- a", "a: b", "#", "~", "\U0001f600"]),
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)


@given(st.lists(values, max_size=2))
def test_yaml_is_read_as_the_values_that_were_written(documents: list[Json]) -> None:
    """Exponents, words that look like other types, characters beyond 16 bits, empty parts."""
    read = list(yaml.safe_load_all(as_yaml(documents)))

    assert read == documents
    assert [str(item) for item in read] == [str(item) for item in documents]
