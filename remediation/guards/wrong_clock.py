"""Notices a clock that went back, by the times in the ledger; then nothing is begun.

What is done about it is a person's.
"""

from datetime import timedelta
from typing import Final

from remediation.ledger.journal import Journal
from remediation.site import Site

CLOCK_SLACK: Final = timedelta(minutes=5)
"""How far the clocks of two hooks may be apart."""


def stopped_by_clock(site: Site, *, journal: Journal) -> Site:
    """The site, stopped where the clock went back: old scores would be young again.

    Where it was the ledger's clock that was wrong, and a person has said so, what it wrote until
    then stops nothing any more.

    Args:
        site: The site's settings.
        journal: Knows the present, and what was written later than it.
    """
    now = journal.clock()
    known = _explained_until(journal)
    later = [one for one in journal.ledger.entries(since=now + CLOCK_SLACK) if one.seq > known]
    if not later:
        return site
    latest = max(one.recorded_at for one in later)
    text = (
        f"the clock shows {now:%Y-%m-%d %H:%M} UTC, the ledger knows {latest:%Y-%m-%d %H:%M} UTC: "
        f"nothing is begun; set the clock right, or acknowledge that it was wrong then"
    )
    journal.escalate(f"clock:{later[-1].key}", why="clock", text=text, more={"seq": later[-1].seq})
    return site.model_copy(update={"is_stopped": True})


def _explained_until(journal: Journal) -> int:
    """Place in the ledger up to which a person has said that the clock was wrong."""
    entries = journal.ledger.entries(kinds=("escalation", "acknowledged"))
    looked_at = {one.refers_to for one in entries if one.kind == "acknowledged"}
    told = [one for one in entries if one.kind == "escalation" and one.key in looked_at]
    return max((one.body.get("seq", 0) for one in told if one.body["why"] == "clock"), default=0)
