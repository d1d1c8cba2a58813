"""What a score's reasons speak of: whether of applications alone.

Reasons are made in `models.reasons`; nothing is decided here.
"""

from collections.abc import Iterable
from typing import Final

APPLICATIONS: Final = "application Xids"
"""The words of the feature that counts them."""
_SHARE: Final = "% of what raises the score): "
"""Marks a reason; names of GPUs and notes on what was not scored stand beside them."""
_ALSO_OF_APPLICATIONS: Final = ("different Xids",)
_OF_JOBS: Final = "jobs ("


def rests_on_applications_alone(reasons: Iterable[str]) -> bool:
    """Whether all that raised a score are signals that applications cause.

    A program that reads beyond its memory raises Xids 13, 31 and 43 on the healthiest GPU. What a
    job is, and how many different Xids there were, says no more than the Xids themselves.

    Args:
        reasons: The node's reasons, as published.

    Returns:
        False also where no reason is given: nothing is known then.

    >>> rests_on_applications_alone(
    ...     ["health events (70 % of what raises the score): Number of application Xids: 4",
    ...      "jobs (30 % of what raises the score): Jobs on it: 2"])
    True
    """
    said = [reason for reason in reasons if _SHARE in reason]
    of_applications = [APPLICATIONS in reason for reason in said]
    return any(of_applications) and all(
        is_one
        or reason.startswith(_OF_JOBS)
        or any(words in reason for words in _ALSO_OF_APPLICATIONS)
        for is_one, reason in zip(of_applications, said, strict=True)
    )
