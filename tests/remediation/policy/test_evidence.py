"""Whether reasons speak of applications alone; written as the models write them."""

import pytest

from features.event_features import EventSpec, event_features
from models.reasons import _sentence
from remediation.policy.evidence import rests_on_applications_alone

BY_NAME = {feature.name: feature for feature in event_features(EventSpec())}


def reason(name: str) -> str:
    return _sentence(BY_NAME[name], 4.0, None, share=0.7, is_unusual=False)


APP = "app_event_count_24h"
HBM = "hbm_event_count_24h"
KINDS = "distinct_xid_count_24h"
GPU = "leading GPU: GPU-1234"
NOTE = "1 of 8 GPUs not scored: no telemetry"
JOBS = "jobs (20 % of what raises the score): Hours since its job began over 7 d: 5 h"
HEAT = "telemetry (40 % of what raises the score): Mean GPU temperature over 24 h: 81 C"


def test_the_names_used_here_exist():
    assert {APP, HBM, KINDS} <= BY_NAME.keys()


@pytest.mark.parametrize(
    ("reasons", "alone"),
    [
        ([], False),
        ([GPU], False),
        ([GPU, reason(APP)], True),
        ([GPU, reason(APP), reason(KINDS), JOBS, NOTE], True),
        ([GPU, reason(APP), HEAT], False),
        ([GPU, reason(APP), reason(HBM)], False),
        ([GPU, JOBS], False),
        ([GPU, reason(KINDS)], False),
    ],
)
def test_g08_only_what_applications_cause_counts_as_such(reasons, alone):
    assert rests_on_applications_alone(reasons) == alone
