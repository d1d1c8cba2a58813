"""Times as a site's programs print them: local time, which is UTC, without an offset.

What is written at which time is in the other writers.
"""

from simulation.fleet.generate import Fleet


def print_time(fleet: Fleet, at_s: int | None, *, absent: str = "") -> str:
    """A second of the fleet as `2026-01-05T00:05:00`.

    Args:
        fleet: The fleet.
        at_s: Seconds since its start; null: not yet.
        absent: What is printed for that.

    Returns:
        The time.
    """
    if at_s is None:
        return absent
    return fleet.moment(at_s).replace(tzinfo=None).isoformat(timespec="seconds")


def print_recorded(fleet: Fleet, at_s: int | None, *, absent: str = "") -> str:
    """As `print_time`; of what comes after the record nobody knows yet.

    Args:
        fleet: The fleet.
        at_s: Seconds since its start; null: not yet.
        absent: What is printed where the time is not known.

    Returns:
        The time.
    """
    is_known = at_s is not None and at_s < fleet.end_s
    return print_time(fleet, at_s if is_known else None, absent=absent)
