import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from features.vocabulary import FAULT_TYPES
from remediation.cluster.reasons import Reason, is_ours, parse_reason

REASONS = st.builds(
    Reason,
    score=st.integers(0, 100).map(lambda percent: percent / 100),
    horizon_h=st.integers(1, 999),
    fault_type=st.sampled_from((None, *FAULT_TYPES)),
    model_version=st.from_regex(r"[A-Za-z0-9._:/+-]{1,64}", fullmatch=True),
    decision_id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
)


@given(REASONS, st.sampled_from(["", " [root@2026-01-05T10:00:00]"]))
def test_g18_every_reason_reads_back_also_with_what_slurm_appends(reason, appended):
    text = f"{reason}{appended}"
    assert is_ours(text)
    assert parse_reason(text) == reason


def test_g18_the_string_is_stable():
    reason = Reason(
        score=0.814,
        horizon_h=24,
        fault_type=None,
        model_version="17",
        decision_id="00112233445566ff",
    )
    assert str(reason) == (
        "forewarn:v1 score=0.81 horizon=24h fault=unknown model=17 id=00112233445566ff"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"score": 1.01},
        {"score": float("nan")},
        {"horizon_h": 0},
        {"fault_type": "gremlins"},
        {"model_version": "17 id=0"},
        {"model_version": "17\n"},
        {"decision_id": "xyz"},
    ],
)
def test_what_could_not_be_read_back_is_refused(changes):
    values = {
        "score": 0.5,
        "horizon_h": 24,
        "fault_type": "gsp",
        "model_version": "17",
        "decision_id": "0" * 16,
    }
    with pytest.raises(DataError, match="Nothing was stamped"):
        Reason(**(values | changes))


@given(st.text())
def test_g18_any_text_reads_as_none_or_as_itself(text):
    reason = parse_reason(text)
    assert reason is None or text.startswith(str(reason))


@pytest.mark.parametrize("text", [None, "", "see forewarn:v1", "Forewarn:v1", "disk"])
def test_g09_other_owners_reasons_are_not_ours(text):
    assert not is_ours(text)
