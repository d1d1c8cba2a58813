"""The site around a fleet: its air, its hardware, its logs, its monitoring; parameters.

What is drawn from them is in `.climate`, `.hardware`, `.telemetry` and `.events`.
"""

from typing import Annotated, Literal

from pydantic import Field

from simulation.fleet.regime_sections import HourRange, NotNegative, Positive, Section, Share, Word


class Spell(Section):
    """A stretch of warm days: the air rises by up to `extra_c` and falls again."""

    day: float
    days: float = Field(gt=0)
    extra_c: float


class Climate(Section):
    """Inlet air, in degC.

    Attributes:
        inlet_c: Mean over the year.
        daily_swing_c: Half the way from the coolest to the warmest hour.
        season_swing_c: Half the way from the coolest to the warmest week.
        season_peak_day: Warmest day, counted from 1 January.
        spells: Warm spells, by day of the record.
        wander_c: Spread of the slow wander that all nodes share.
    """

    inlet_c: float
    daily_swing_c: float
    season_swing_c: float = 0.0
    season_peak_day: float = 200.0
    spells: tuple[Spell, ...] = ()
    wander_c: NotNegative


class Mig(Section):
    """Nodes whose GPUs are partitioned (multi-instance GPU): the last nodes of the fleet.

    Attributes:
        node_share: Share of nodes.
        profile: Name of a slice as the driver gives it.
        instances: Slices of a GPU; each is given to a job of its own.
    """

    node_share: Share
    profile: Word = "1g.10gb"
    instances: int = Field(default=7, ge=2, le=7)


class Hardware(Section):
    """The GPU product and the node around it."""

    model: Word
    idle_w: Positive
    max_w: Positive
    frame_buffer_mib: int = Field(ge=1024)
    idle_clock_mhz: int
    max_clock_mhz: int
    memory_clock_mhz: int
    pci_buses: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{2}$")], ...]
    nodes_per_rack: int = Field(ge=1)
    leaky_share: Share
    leaky_sbe_per_day: NotNegative
    mig: Mig | None = None


class Outage(Section):
    """Monitoring of the whole fleet that fails: telemetry ends, the fleet goes on."""

    day: float
    minutes: float = Field(gt=0)


class Disturbances(Section):
    """Things that happen to monitoring and to the fleet, not to one GPU's health.

    Attributes:
        missed_scrape_share: Scrapes of a node that are lost.
        blank_share: Samples of fields that now and then give no value, which give none.
        outages: Outages of monitoring as a whole.
        rack_outages_per_year: Of the collector of one rack.
        rack_outage_h: How long they last.
        exporter_deaths_per_node_year: Exporters that die until somebody restarts them.
        exporter_death_h: How long that takes.
        driver_day: When the first node gets the new driver.
        driver_stagger_h: From one node to the next.
        driver_drain_h: Notice given to jobs before the work.
        driver_work_min: Work on one node.
        driver_before: Release before.
        driver_after: Release after.
        reboots_per_node_year: Reboots for other maintenance, after a drain.
        holds_per_node_year: Nodes drained by their operators for no hardware's sake.
        hold_h: How long they are kept out.
        chatter_per_day: Kernel messages of a healthy node.
        reboot_min: How long a reboot takes.
    """

    missed_scrape_share: Share
    blank_share: Share
    outages: tuple[Outage, ...] = ()
    rack_outages_per_year: float = Field(default=0.0, ge=0)
    rack_outage_h: HourRange = (0.25, 4.0)
    exporter_deaths_per_node_year: float = Field(default=0.0, ge=0)
    exporter_death_h: HourRange = (0.5, 48.0)
    driver_day: float
    driver_stagger_h: NotNegative
    driver_drain_h: NotNegative
    driver_work_min: Positive
    driver_before: Word
    driver_after: Word
    reboots_per_node_year: float = Field(default=0.0, ge=0)
    holds_per_node_year: float = Field(default=0.0, ge=0)
    hold_h: HourRange = (4.0, 72.0)
    chatter_per_day: NotNegative
    reboot_min: Positive


LogForm = Literal["iso_uptime", "dmesg_ctime", "dmesg_iso", "iso", "rfc3164", "journald"]
"""How a kernel log is written: rsyslog with and without uptime, dmesg, old syslog, journal JSON."""


class Logs(Section):
    """Kernel logs.

    Attributes:
        forms: Nodes take these in turn.
        collected_above_nodes: Above so many nodes a log host collects: one file for a group of
            nodes, in the forms that name the host.
        nameless_share: Nodes whose driver's Xid lines name no process, as older releases do.
    """

    forms: tuple[LogForm, ...] = Field(min_length=1)
    collected_above_nodes: int = 64
    nameless_share: Share = 0.2
