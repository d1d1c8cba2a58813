"""Hostlists against their definition, and the malformed ones."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from features.hostlist import expand_hostlist


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login1", ["login1"]),
        ("foo0[10-12],foo-m11-16", ["foo010", "foo011", "foo012", "foo-m11-16"]),
        ("n[008-010]", ["n008", "n009", "n010"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[1,3-4]", ["n1", "n3", "n4"]),
        ("rack[0-1]_blade[0-1]", [f"rack{r}_blade{b}" for r in (0, 1) for b in (0, 1)]),
        ("a[1-2]-ib, b", ["a1-ib", "a2-ib", "b"]),
    ],
)
def test_hostlists_are_written_out(text, hosts):
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize(
    "text",
    ["", "a,,b", "a[1-2", "a1-2]", "a[]", "a[2-1]", "a[x]", "a[[1]]", "a[1-2,]", "a b", "a[-1]",
     "a[1-2000000]", "a[1-2000][1-2000]", "a[1-99999999999999999999999]"],
)  # fmt: skip
def test_a_malformed_hostlist_is_an_error_and_never_a_guess(text):
    with pytest.raises(DataError, match="hostlist"):
        expand_hostlist(text)


NAMES = st.text("abcxyz-_.", min_size=1, max_size=4)


@st.composite
def ranges(draw):
    """A bracket and what it stands for."""
    width = draw(st.integers(1, 4))
    spans = []
    for _ in range(draw(st.integers(1, 3))):
        low = draw(st.integers(0, 10**width - 1))
        spans.append((low, draw(st.integers(low, min(low + 3, 10**width - 1)))))
    text = ",".join(
        f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"
        for low, high in spans
    )
    return f"[{text}]", [f"{n:0{width}d}" for low, high in spans for n in range(low, high + 1)]


@st.composite
def hostlists(draw):
    """A compressed hostlist and the names it stands for, by construction."""
    words, hosts = [], []
    for _ in range(draw(st.integers(1, 3))):
        parts = [(name, [name]) for name in [draw(NAMES)]]
        for _ in range(draw(st.integers(0, 2))):
            parts.append(draw(ranges()))
            if draw(st.booleans()):
                name = draw(NAMES)
                parts.append((name, [name]))
        words.append("".join(text for text, _ in parts))
        hosts += ["".join(names) for names in product(*(names for _, names in parts))]
    return ",".join(words), hosts


@given(hostlists())
def test_a_compressed_list_expands_to_what_it_was_made_of(case):
    text, hosts = case
    assert expand_hostlist(text) == hosts


@given(st.text("ab01[]-, ", max_size=30))
def test_any_text_expands_or_is_refused(text):
    try:
        hosts = expand_hostlist(text)
    except DataError:
        return
    assert hosts
    assert all(hosts)
