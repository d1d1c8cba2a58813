"""Every word of the scheduler means up, drain, down or unknown, in each of its spellings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.scheduler_states import OPEN_JOB_STATES, UNSTARTED_JOB_STATES, job_cause, node_state


@pytest.mark.parametrize(
    ("texts", "state"),
    [
        ("IDLE idle ALLOCATED alloc MIXED mix mixed- mix- idle- COMPLETING comp", "up"),
        ("PLANNED plnd RESERVED resv IDLE+RESERVED IDLE+PLANNED allocated+", "up"),
        ("idle@ MIXED+REBOOT_REQUESTED ALLOCATED+COMPLETING IDLE+CLOUD BLOCKED", "up"),
        ("DRAIN drained drng draining MIXED+DRAIN IDLE+DRAIN drng@ drained$", "drain"),
        ("MAINT maint IDLE+MAINT IDLE+MAINTENANCE+RESERVED idle$ idle^ boot", "drain"),
        ("FAILING failg INVAL IDLE+INVALID_REG REBOOT_ISSUED drained* drain*", "drain"),
        ("DRAINED+NOT_RESPONDING IDLE+DRAIN+POWERED_DOWN", "drain"),
        ("DOWN down down* DOWN*+DRAIN DOWN+DRAIN DOWN+NOT_RESPONDING fail*", "down"),
        ("DOWN+POWERED_DOWN DOWN*+DRAIN+MAINT down$ ERROR FAIL", "down"),
        ("idle* alloc* mix* UNKNOWN unk unk* FUTURE futr IDLE+NOT_RESPONDING", "unknown"),
        ("idle~ idle# mix# idle% idle! POWERED_DOWN IDLE+CLOUD+POWERED_DOWN", "unknown"),
        ("whatever 7 ? *", "unknown"),
    ],
)  # fmt: skip
def test_words_signs_and_flags_of_nodes(texts, state):
    assert {text: node_state(text) for text in texts.split()} == dict.fromkeys(texts.split(), state)


def test_an_empty_state_is_unknown():
    assert node_state("") == node_state("  ") == "unknown"


@given(st.lists(st.sampled_from(["IDLE", "DRAIN", "DOWN", "PLANNED", "POWERED_DOWN"]), min_size=1))
def test_the_order_of_flags_does_not_matter(flags):
    assert node_state("+".join(flags)) == node_state(" ".join(reversed(flags)))


def test_a_job_that_has_not_ended_has_no_cause():
    assert UNSTARTED_JOB_STATES < OPEN_JOB_STATES
    assert {job_cause(state) for state in OPEN_JOB_STATES} == {None}
