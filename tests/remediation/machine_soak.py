"""Walks the state machine for as many steps as asked, and prints what was used and checked.

`make soak STEPS=100000 SEED=7`; what happens is in `machine_rules`.
"""

# ruff: noqa: T201 - it is a program

import sys
import time
from collections import Counter

from tests.remediation.machine_walk import said, shrink, soak


def main(n_steps: int, seed: int) -> int:
    begun = time.process_time()
    made = soak(n_steps, seed=seed)
    seconds = time.process_time() - begun
    print(f"{made.steps} steps from seed {seed} in {seconds:.0f} s of CPU time")
    print(f"rules used: {_words(made.used)}")
    print(f"invariants checked: {_words(made.checked)}")
    if made.walk is None:
        print("no violation")
        return 0
    print(f"VIOLATION\n{said(shrink(made.walk))}")
    return 1


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
