"""Lines torn by line breaks in fields: none lost, none swallowed."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.slurm.torn_lines import join_torn


@given(st.lists(st.text("ab| ", max_size=6), max_size=12), st.integers(1, 4))
def test_records_are_the_lines(lines, width):
    assert "\n".join(join_torn(lines, delimiter="|", width=width)) == "\n".join(lines)
    for record in join_torn(lines, delimiter="|", width=width):
        first, *others = record.split("\n")
        assert all(line.count("|") < width - 1 for line in others if first.count("|") < width - 1)


def test_very_many_short_lines_are_not_one_record():
    assert len(list(join_torn(["x"] * 250, delimiter="|", width=3))) == 250
