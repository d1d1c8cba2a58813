"""`sacct --parsable2` to job records, against DuckDB and Polars reading the same file as CSV.

Both peers only cut the text into columns of strings; nothing is understood, expanded or checked.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl

from pipelines.sources.slurm.sacct import stream_sacct

N_ROWS = 1_000_000
RUNS = 5
LIMIT = 2.0
NOW = datetime(2026, 12, 1, tzinfo=UTC)
HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|ExitCode|Submit|Start|End|NNodes|"
    "NodeList|AllocTRES|Reason"
)


def write_accounting(path: Path, *, n_rows: int = N_ROWS, seed: int = 7) -> None:
    """Writes records as sacct does: each job with its steps, one in 20,000 with an odd name.

    Args:
        path: The file.
        n_rows: Records.
        seed: Of the random numbers.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    start = datetime(2026, 10, 1)  # noqa: DTZ001 - a wall clock, as sacct prints
    states = ["COMPLETED"] * 8 + ["FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED by {}"]
    written, job = 0, 4_000_000
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        while written < n_rows:
            job += 1
            start += timedelta(seconds=rng.randrange(20))
            began = start + timedelta(seconds=rng.randrange(3_000))
            ended = began + timedelta(seconds=rng.randrange(200_000))
            times = f"{start:%FT%T}|{began:%FT%T}|{ended:%FT%T}"
            size = rng.choice([1, 1, 1, 1, 2, 4, 8, 32])
            first = rng.randrange(2_000)
            nodes = f"gpu{first:04d}" if size == 1 else f"gpu[{first:04d}-{first + size - 1:04d}]"
            name = "a | grep b" if rng.randrange(5_000) == 0 else f"train_llm_{job % 977}"
            state = rng.choice(states).format(20_000 + job % 400)
            tres = f"cpu={size * 96},gres/gpu={size * 8},mem={size * 512}G,node={size}"
            tail = f"{times}|{size}|{nodes}|{tres}"
            user = f"user{job % 400}"
            code = "1:0" if state == "FAILED" else "0:0"
            file.write(
                f"{job}|{job}|{name}|{user}|research|gpu|normal|{state}|{code}|"
                f"{times}|{size}|{nodes}|billing={size * 96},{tres}|None\n"
            )
            short = state.split(" ", maxsplit=1)[0]
            for step in ("batch", "extern", "0"):
                file.write(f"{job}.{step}|{job}.{step}|{step}||research|||{short}|{code}|{tail}|\n")
            written += 4


def read_ours(path: Path) -> int:
    """Reads as ingest does, part by part, in a zone with summer time."""
    parts = stream_sacct(path, time_zone="Europe/Berlin", ingested_at=NOW)
    return sum(part.table("raw/job_log").height for part in parts)


def read_polars(path: Path) -> int:
    """Cuts into strings; nothing that looks odd is understood."""
    return pl.read_csv(
        path, separator="|", infer_schema=False, quote_char=None, truncate_ragged_lines=True
    ).height


def read_duckdb(path: Path) -> int:
    """Cuts into strings, into a table in memory."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM read_csv(?, delim='|', header=true, "
            "all_varchar=true, quote='', escape='', strict_mode=false, null_padding=true, "
            "ignore_errors=true)",
            [str(path)],
        )
        found = connection.execute("SELECT count(*) FROM t").fetchone()
    return int(found[0]) if found else 0


def cpu_seconds(run: Callable[[Path], int], path: Path) -> float:
    """CPU time of one call, all threads."""
    began = time.process_time()
    run(path)
    return time.process_time() - began


def rows() -> list[str]:
    """One line per peer, and one that holds the limit against the faster of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sacct.txt"
        write_accounting(path)
        megabytes = path.stat().st_size / 1e6
        runs = {"ours": read_ours, "polars": read_polars, "duckdb": read_duckdb}
        for run in runs.values():
            run(path)  # warm-up: compiled functions, file cache
        taken = [{name: cpu_seconds(run, path) for name, run in runs.items()} for _ in range(RUNS)]
    median = {name: statistics.median(run[name] for run in taken) for name in runs}
    lines = [
        f"{f'sacct, {N_ROWS:,} rows, {megabytes:.0f} MB':<44}{median['ours']:>9.3f}"
        f"{median[peer]:>9.3f}{statistics.median(r['ours'] / r[peer] for r in taken):>9.2f}  "
        f"{peer}, plain CSV of strings"
        for peer in ("polars", "duckdb")
    ]
    worst = statistics.median(r["ours"] / min(r["polars"], r["duckdb"]) for r in taken)
    verdict = "holds" if worst <= LIMIT else "MISSED"
    name = "  against the faster of the two"
    lines.append(f"{name:<44}{'':>18}{worst:>9.2f}  at most {LIMIT:g}: {verdict}")
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))
