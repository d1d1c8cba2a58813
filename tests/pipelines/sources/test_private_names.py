"""Names hidden behind keyed tokens."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from pipelines.sources.private_names import hash_names

KEY = b"0123456789abcdef"


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=8)
)
def test_equal_names_have_equal_tokens_and_others_others(names):
    frame = pl.DataFrame(
        {"user": names, "n": range(len(names))}, schema={"user": pl.String, "n": pl.Int64}
    )
    hidden = hash_names(frame, columns=["user", "absent"], key=KEY)
    assert hidden["n"].to_list() == frame["n"].to_list()
    tokens = hidden["user"].to_list()
    assert [token is None for token in tokens] == [name is None for name in names]
    assert len(set(tokens)) == len(set(names))
    assert not set(tokens) & (set(names) - {None})


def test_another_key_gives_other_tokens():
    frame = pl.DataFrame({"user": ["ann"]})
    one, other = (hash_names(frame, columns=["user"], key=k)["user"][0] for k in (KEY, KEY[::-1]))
    assert one != other


def test_a_key_that_can_be_guessed_is_refused():
    with pytest.raises(SettingsError, match="openssl rand"):
        hash_names(pl.DataFrame(), columns=[], key=b"secret")
