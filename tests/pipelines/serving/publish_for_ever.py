"""Publishes tick after tick into a folder and a database, until it is killed; run by a test."""

import sys
from datetime import timedelta
from pathlib import Path

from pipelines.flow.publish import publish_scores
from pipelines.serving.published import latest_published
from pipelines.serving.score_database import write_tick
from pipelines.serving.score_schema import open_engine
from tests.pipelines.serving.score_rows import HOUR, RULE, T0, rows_of


def main() -> None:
    folder, engine = Path(sys.argv[1]), open_engine(f"sqlite:///{sys.argv[2]}")
    before = latest_published(folder)
    hour = 0 if before is None else (before.tick.as_of - T0) // HOUR
    while True:
        hour += 1
        score = hour % 97 / 100
        nodes = rows_of("node", hour, {f"n{i}": score for i in range(300)})
        gpus = rows_of("gpu", hour, {f"g{i}": score for i in range(300)})
        as_of = T0 + hour * HOUR
        publish_scores(
            folder, gpu_scores=gpus, node_scores=nodes, published_at=as_of, ttl=timedelta(hours=1)
        )
        published = latest_published(folder)
        assert published is not None
        write_tick(
            engine, published.tick, node_scores=published.node_scores(),
            gpu_scores=published.gpu_scores(), rule=RULE,
        )  # fmt: skip
        if hour == 1 or before is not None:
            sys.stdout.write("begun\n")
            sys.stdout.flush()
            before = None


if __name__ == "__main__":
    main()
