"""Members that look at the last rows of an entity: a recurrent and a convolutional network.

They need torch (`pip install 'forewarn[sequence]'`), which is loaded when one is fitted or scores
and never otherwise. What is kept are plain arrays.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ForewarnError
from models.calibration import FloatArray
from models.ensembles.preparation import Preparation, fit_preparation, training_sample
from models.ensembles.sequences import ABSENT, last_rows
from models.specs import COLD_START_INCIDENTS, Task

Architecture = Literal["LSTM", "1D-CNN"]
State = dict[str, npt.NDArray[np.float32]]

MAX_SEQUENCES: Final = 10_000
"""Negatives learned from; a step over sequences costs some ten times one over rows."""

_BLOCK: Final = 16_384  # sequences scored at once
_BATCH: Final = 256  # sequences per step of training


class TorchMissingError(ForewarnError):
    """A sequence member was asked for where torch is not installed."""


@dataclass(frozen=True)
class SequenceMember:
    """A network over the last rows of an entity.

    Attributes:
        architecture: LSTM or 1D-CNN.
        length: Rows per sequence.
        preparation: From features to inputs.
        state: The network's arrays by name.
        shift: Added to what the network gives, for the negatives it did not see.
    """

    architecture: Architecture
    length: int
    preparation: Preparation
    state: State
    shift: float

    def raw_scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:
        """See `Member.raw_scores`; without `earlier` a sequence begins with the rows given."""
        wanted = ["entity_id", "as_of", *self.preparation.feature_names]
        known = rows.select(wanted)
        before = 0
        if earlier is not None:
            of_these = earlier.join(rows.select("entity_id").unique(), on="entity_id", how="semi")
            before = of_these.height
            known = pl.concat([of_these.select(wanted), known])
        at = last_rows(known, length=self.length)[before:]
        torch = _torch()
        network = _network(torch, self.architecture, width=self.preparation.width + 1, seed=0)
        network.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in self.state.items()})
        network.eval()
        scores = np.empty(rows.height)
        with _single_thread(torch), torch.no_grad():
            for start in range(0, rows.height, _BLOCK):
                block = _sequences(known, at[start : start + _BLOCK], self.preparation)
                out = _forward(torch, network, self.architecture, torch.from_numpy(block))
                scores[start : start + _BLOCK] = out.numpy()
        return scores + self.shift

    def to_dict(self) -> dict[str, Any]:
        """See `Member.to_dict`."""
        return {
            "kind": "sequence",
            "architecture": self.architecture,
            "length": self.length,
            "preparation": self.preparation.to_dict(),
            "state": {name: array.tolist() for name, array in self.state.items()},
            "shift": self.shift,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SequenceMember":
        """The member from what `to_dict` gave."""
        state = {n: np.asarray(array, dtype=np.float32) for n, array in values["state"].items()}
        return cls(
            values["architecture"],
            values["length"],
            Preparation.from_dict(values["preparation"]),
            state,
            values["shift"],
        )


@dataclass(frozen=True, kw_only=True)
class SequenceSpec:
    """A network over the last rows of an entity.

    Attributes:
        architecture: LSTM or 1D-CNN.
        length: Rows per sequence, the scored one included.
        epochs: Passes over the sample.
        learning_rate: Of Adam.
        weight_decay: Of Adam.
        max_negatives: Negatives learned from, about.
        seed: Seed of the negatives, of the first weights and of the order of rows.
        min_incidents: Fewer incidents than this is a cold start.
    """

    architecture: Architecture
    length: int = 4
    epochs: int = 8
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    max_negatives: int = MAX_SEQUENCES
    seed: int = 1
    min_incidents: int = COLD_START_INCIDENTS

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.architecture

    def fit(
        self,
        rows: pl.DataFrame,
        *,
        feature_names: Sequence[str],
        task: Task,  # noqa: ARG002 - the same for every task
    ) -> SequenceMember:
        """See `MemberSpec.fit`.

        Raises:
            TorchMissingError: torch is not installed.
        """
        torch = _torch()
        sample = training_sample(
            rows,
            max_negatives=self.max_negatives,
            seed=self.seed,
            min_incidents=self.min_incidents,
        )
        preparation = fit_preparation(sample, feature_names)
        at = last_rows(sample.rows, length=self.length)[sample.at]
        inputs = torch.from_numpy(_sequences(sample.rows, at, preparation))
        label = torch.from_numpy(sample.label.astype(np.float32))
        with _single_thread(torch):
            network = _network(
                torch, self.architecture, width=preparation.width + 1, seed=self.seed
            )
            self._learn(torch, network, inputs, label)
        state = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
        return SequenceMember(self.architecture, self.length, preparation, state, sample.log_share)

    def _learn(self, torch: Any, network: Any, inputs: Any, label: Any) -> None:
        optimizer = torch.optim.Adam(
            network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        loss_of = torch.nn.BCEWithLogitsLoss()
        rng = np.random.default_rng(self.seed)
        for _ in range(self.epochs):
            order = torch.from_numpy(rng.permutation(label.shape[0]))
            for batch in order.split(_BATCH):
                optimizer.zero_grad()
                out = _forward(torch, network, self.architecture, inputs[batch])
                loss_of(out, label[batch]).backward()
                optimizer.step()


def _torch() -> Any:
    # By name, so that neither the type checker nor an import of this module needs it.
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise TorchMissingError(
            "sequence members (LSTM, 1D-CNN) need torch, which is not installed. Install "
            "'forewarn[sequence]', or leave these members out."
        ) from error


@contextmanager
def _single_thread(torch: Any) -> Iterator[None]:
    """One thread, so that sums are taken in one order on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _network(torch: Any, architecture: Architecture, *, width: int, seed: int) -> Any:
    """The layers with their first weights; the global random state is left as it was."""
    nn, hidden = torch.nn, 16
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if architecture == "LSTM":
            body = nn.LSTM(width, hidden, batch_first=True)
        else:
            body = nn.Sequential(
                nn.Conv1d(width, hidden, 3, padding=1),
                nn.ReLU(),
                nn.Conv1d(hidden, hidden, 3, padding=1),
                nn.ReLU(),
            )
        return nn.ModuleDict({"body": body, "head": nn.Linear(hidden, 1)})


def _forward(torch: Any, network: Any, architecture: Architecture, inputs: Any) -> Any:
    """Log-odds of sequences, inputs of shape (n, length, width)."""
    if architecture == "LSTM":
        out, _ = network["body"](inputs)
        told = out[:, -1]
    else:
        told = torch.amax(network["body"](inputs.transpose(1, 2)), dim=2)
    return network["head"](told)[:, 0]


def _sequences(
    rows: pl.DataFrame, at: npt.NDArray[np.intp], preparation: Preparation
) -> npt.NDArray[np.float32]:
    """Prepared rows by position, zero where absent, with a last column that tells which are there.

    Shape (n, length, width + 1).
    """
    used, place = np.unique(at[at != ABSENT], return_inverse=True)
    values = preparation.apply(rows[used])
    found = np.zeros((*at.shape, preparation.width + 1), dtype=np.float32)
    found[at != ABSENT, :-1] = values[place]
    found[at != ABSENT, -1] = 1.0
    return found
