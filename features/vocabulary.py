"""The closed sets of words that tables and code share: entities, fault types, statuses, actions.

No table and no logic.
"""

from typing import Final

ENTITY_KINDS: Final = ("gpu", "node")

FAULT_TYPES: Final = (
    "hbm_uncorrectable",
    "row_remap_failure",
    "off_bus",
    "gsp",
    "nvlink",
    "pcie",
    "thermal",
    "power",
    "nic_fabric",
    "host",
    "sdc",
    "other_gpu",
)
"""Hardware fault types an incident may have; the catalogue maps evidence to them."""

EVENT_SEVERITIES: Final = ("corrected", "nonfatal", "uncorrected", "fatal")
"""What a log line may call the error it reports; `uncorrected` leaves open whether it is fatal."""

JOB_CAUSES: Final = ("user_code", "oom", "storage", "hang", "slow", "nan", "hardware", "unknown")
"""Why a job ended badly, where it did."""

CENSORED_BY: Final = (
    "data_end",  # the record ends before the horizon does
    "not_watched",  # the entity left, moved, or was not observed through the horizon
    "maintenance",  # a person's planned work
    "own_action",  # our own cordon or drain hid the outcome
    "in_incident",  # an incident was open at as_of
    "in_lead",  # an incident starts before as_of + L
)

SCORE_STATUSES: Final = ("ok", "prior", "unknown")

OUTCOMES: Final = ("hit", "false_alarm", "miss", "censored")
"""What became of an alert (hit, false alarm, not to be told), or of an incident without one."""

TRAINED_ON: Final = ("synthetic", "real")

ACTIONS: Final = (
    "none",
    "watch",
    "cordon",
    "drain_after_jobs",
    "checkpoint_then_drain",
    "drain_now",
)
"""What the hook may do to a node, in rising order of harm to running work."""

POLICY_LEVELS: Final = ("observe", "recommend", "cordon", "drain_after_jobs", "notify_then_drain")
"""How far automation may go for a group of nodes and a fault type."""
