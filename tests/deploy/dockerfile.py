"""Reads the Dockerfile as a list of instructions; rules about them are in `test_docker`."""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """Attributes: its word, the rest of it on one line, and its stage, from 0."""

    word: str
    rest: str
    stage: int

    @property
    def words(self) -> list[str]:
        """An instruction in exec form as words.

        Raises:
            ValueError: It is in shell form.
        """
        return [str(word) for word in json.loads(self.rest)]


def instructions() -> list[Instruction]:
    """All instructions, in order; those before the first FROM have stage -1."""
    found: list[Instruction] = []
    stage, open_line = -1, ""
    for line in DOCKERFILE.read_text().splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        open_line += line.strip().removesuffix("\\")
        if line.endswith("\\"):
            open_line += " "
            continue
        word, _, rest = open_line.partition(" ")
        stage += word == "FROM"
        found.append(Instruction(word, rest.strip(), stage))
        open_line = ""
    return found
