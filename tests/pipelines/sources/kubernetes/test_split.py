"""Cutting JSON into objects: whatever stands around, before or within them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.kubernetes import split as kubernetes_split
from pipelines.sources.kubernetes.split import (
    ListStart,
    MalformedPiece,
    Piece,
    Split,
    split_objects,
)
from tests.pipelines.sources.kubernetes.test_objects import ANY_JSON


def split(data: bytes, size: int = 10**6) -> list[Split]:
    return list(split_objects(data[at : at + size] for at in range(0, len(data), size)))


def shown(found: list[Split]) -> list[tuple[str, str | None, str]]:
    names: dict[type, str] = {Piece: "piece", MalformedPiece: "malformed", ListStart: "list"}
    return [
        (names[type(f)], f.rule if isinstance(f, MalformedPiece) else f.kind, f.raw.decode())
        for f in found
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"kind":"Pod"}', [("piece", None, '{"kind":"Pod"}')]),
        (
            '{"apiVersion":"v1","items":[{"a":1},{"b":{"c":[2]}}],"kind":"List"}',
            [("list", None, ""), ("piece", None, '{"a":1}'), ("piece", None, '{"b":{"c":[2]}}')],
        ),
        (
            '{"kind":"PodList","metadata":{"x":{}},"items":[{}]}',
            [("list", "Pod", ""), ("piece", "Pod", "{}")],
        ),
        ('{"kind":"List", "items" : [ ] }', [("list", None, "")]),
        ('{"items":null}', [("piece", None, '{"items":null}')]),
        ('{"a":{"items":[{}]}}', [("piece", None, '{"a":{"items":[{}]}}')]),
        ('{"a":"items","b":[1]}', [("piece", None, '{"a":"items","b":[1]}')]),
        (
            '{"a":1}\n{"a":2}\n\x1e{"a":3}',
            [("piece", None, f'{{"a":{n}}}') for n in (1, 2, 3)],
        ),
        ('[{"a":1},2]', [("list", None, ""), ("piece", None, '{"a":1}'), ("piece", None, "2")]),
        (
            '{"items":[null,"x, y",{"a":"}]\\"{"}]}',
            [
                ("list", None, ""),
                ("piece", None, "null"),
                ("piece", None, '"x, y"'),
                ("piece", None, '{"a":"}]\\"{"}'),
            ],
        ),
        (
            'Warning: old API\n{"a":1}\nbye',
            [
                ("malformed", "not JSON", "Warning: old API"),
                ("piece", None, '{"a":1}'),
                ("malformed", "not JSON", "bye"),
            ],
        ),
        (
            '{"items":[{"a":1},{"b":',
            [
                ("list", None, ""),
                ("piece", None, '{"a":1}'),
                ("malformed", "cut off before its end", '{"b":'),
            ],
        ),
        (
            '{"items":[{"a":"broken\n},{"a":2}]}',
            [("list", None, ""), ("piece", None, '{"a":"broken\n}'), ("piece", None, '{"a":2}')],
        ),
        ("", []),
        ("  \n", []),
    ],
)
def test_objects_are_found_and_the_rest_is_named(data: str, expected: Any):
    assert shown(split(data.encode())) == expected
    for size in (1, 2, 7):
        assert shown(split(data.encode(), size)) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_byte_order_marks_are_understood(encoding: str):
    text = '{"kind":"Pod","name":"é日"}'
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    data = (mark + text).encode(encoding)
    for size in (1, 3, 100):
        assert shown(split(data, size)) == [("piece", None, text)]


def test_an_endless_object_is_told_once_and_passed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kubernetes_split, "MOST_BYTES", 20)
    long = json.dumps({"a": [{"b": n} for n in range(30)]})
    for around in ('{"items":[%s,{"a":1}]}', '%s {"a":1}'):
        found = split((around % long).encode(), 8)
        rules = [f.rule for f in found if isinstance(f, MalformedPiece)]
        assert rules == ["longer than an object can be"]
        assert [f.raw for f in found if isinstance(f, Piece)] == [b'{"a":1}']


@given(
    st.lists(st.dictionaries(st.text(max_size=5), ANY_JSON, max_size=3), max_size=4),
    st.integers(1, 50),
    st.booleans(),
)
def test_every_list_is_cut_into_its_items_wherever_it_is_read(
    found: list[dict[str, Any]], size: int, is_indented: bool
):
    data = json.dumps({"kind": "List", "items": found}, indent=4 if is_indented else None).encode()
    pieces = [json.loads(f.raw) for f in split(data, size) if isinstance(f, Piece)]
    assert json.dumps(pieces) == json.dumps(found)


@given(st.binary(max_size=200) | st.text('{}[]",:\\ \nai1', max_size=100).map(str.encode))
def test_any_bytes_are_cut_the_same_wherever_they_are_read(data: bytes):
    whole = split(data)
    assert whole == split(data, 1) == split(data, 3)
