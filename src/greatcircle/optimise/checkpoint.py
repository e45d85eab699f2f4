"""Checkpoints: a run on disk, from which it resumes with bit-identical results.

A checkpoint holds the state of the loop, the records and, with early stopping, the best weights.
Scaling, network and validation part follow from data, parameters and seed, so they are computed
again; a fingerprint checks that data and parameters are the same.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from greatcircle._runtime.atomic import atomic_write
from greatcircle._runtime.container import SUFFIX, pack, unpack
from greatcircle.geometry.sphere import Tree
from greatcircle.optimise.record import Record

__all__ = ["Checkpoint", "Saved", "check_same", "fingerprint"]

NAME = f"checkpoint{SUFFIX}"


class Saved(NamedTuple):
    """The content of a checkpoint."""

    seed: int
    fingerprint: dict[str, str]
    leaves: tuple[np.ndarray, ...]
    """Leaves of the state, in the order of JAX."""
    records: tuple[Record, ...]
    best: tuple[np.ndarray, ...] | None
    """Weights with the lowest validation loss; None without early stopping."""

    def state(self, like: Any) -> Any:
        """Return the state of the run; `like` is another state of the same run."""
        leaves, structure = jax.tree.flatten(like)
        shapes = [np.shape(leaf) for leaf in leaves]
        # The position of a source varies in length.
        if len(leaves) != len(self.leaves) or any(
            len(shape) > 1 and shape != np.shape(leaf)
            for shape, leaf in zip(shapes, self.leaves, strict=True)
        ):
            raise ValueError(
                "the checkpoint's state does not fit this network, direction and row schedule: "
                "another version of greatcircle may have written it; use resume=False to start "
                "again"
            )
        return jax.tree.unflatten(structure, self.leaves)


@dataclass(frozen=True)
class Checkpoint:
    """One file in a folder, written at most once per interval.

    Parameters
    ----------
    folder
        The folder of the file; created if it does not exist.
    interval
        Smallest number of seconds between two writes.
    resume
        Whether to resume from the checkpoint in the folder, if there is one.
    seed
        Seed of the run, which is saved with it.
    fingerprint
        Texts that identify data and parameters, by name. `descend` adds its own if it is None.
    best
        Returns the weights with the lowest validation loss, to be saved as well.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from greatcircle import Checkpoint, Network, Problem, descend, directions, stopping
    >>> x = np.linspace(-1, 1, 50).reshape(-1, 1)
    >>> problem = Problem(Network((1, 8, 1), "tanh"), x, 0.2 * np.sin(3 * x))
    >>> weights, folder = problem.network.initial_weights(seed=0), tempfile.mkdtemp()
    >>> method = {"direction": directions.Steepest(), "stop": stopping.MaxIter(3)}
    >>> first = descend(problem, weights, **method, checkpoint=Checkpoint(folder))
    >>> method["stop"] = stopping.MaxIter(5)
    >>> rest = descend(problem, weights, **method, checkpoint=Checkpoint(folder, resume=True))
    >>> len(rest.records)
    5
    """

    folder: str | os.PathLike[str]
    interval: float = 60.0
    resume: bool = False
    seed: int = 0
    fingerprint: Mapping[str, str] | None = None
    best: Callable[[], Tree | None] = lambda: None
    saved: Saved | None = field(init=False, default=None)
    """The checkpoint to resume from, or None."""
    _clock: "_Clock" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.interval, int | float) or not 0 <= self.interval < math.inf:
            raise ValueError(
                f"checkpoint_interval is {self.interval!r}; expected a non-negative number of "
                "seconds"
            )
        if not isinstance(self.folder, str | os.PathLike):
            raise ValueError(
                f"checkpoint is {self.folder!r}; expected the name of a folder, or None"
            )
        folder = Path(self.folder)
        if folder.exists() and not folder.is_dir():
            raise ValueError(
                f"checkpoint is {str(self.folder)!r}, which is a file; expected a folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        saved = _read(self.path) if self.resume and self.path.exists() else None
        object.__setattr__(self, "saved", saved)
        object.__setattr__(self, "_clock", _Clock())
        if self.fingerprint is not None and saved is not None:
            check_same(self.path, saved.fingerprint, self.fingerprint)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder) / NAME

    def within(self, name: str) -> "Checkpoint":
        """Return the checkpoint of another run of the same fit, in a folder within this one."""
        return replace(self, folder=Path(self.folder) / name)

    def bound_to(self, objective: Any, direction: Any, step: Any) -> "Checkpoint":
        """Return a copy with the fingerprint of the problem; keep a fingerprint that is given."""
        if self.fingerprint is not None:
            return self
        network = getattr(objective, "network", None)
        of = {
            "network": network and (network.sizes, network.activation.name, network.bias),
            "loss": getattr(objective, "criterion", None),
            "dtype": str(getattr(objective, "dtype", "")),
            "direction": direction,
            "step": step,
        }
        return replace(self, fingerprint={name: repr(part) for name, part in of.items()})

    def write_if_due(self, state: Any, records: Sequence[Record]) -> None:
        """Write if the interval has passed since the last write."""
        if time.monotonic() - self._clock.written >= self.interval:
            self.write(state, records)

    def write(self, state: Any, records: Sequence[Record]) -> None:
        """Write atomically: a crash leaves the last checkpoint or this one."""
        if jax.process_index() != 0:
            return
        leaves = jax.tree.leaves(jax.device_get(state))
        tensors = {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        tensors["records"] = np.array(records, np.float64).reshape(-1, len(Record._fields))
        best = self.best()
        if best is not None:
            tensors |= {f"best.{i}": np.asarray(w) for i, w in enumerate(jax.tree.leaves(best))}
        texts = {
            "kind": "checkpoint",
            "seed": str(self.seed),
            "of": json.dumps(dict(self.fingerprint or {})),
        }
        atomic_write(self.path, pack(tensors, texts))
        self._clock.written = time.monotonic()


class _Clock:
    """Time of the last write; nothing but the time of the next write depends on it."""

    def __init__(self) -> None:
        self.written = time.monotonic()


def fingerprint(parameters: Mapping[str, Any], **arrays: np.ndarray | None) -> dict[str, str]:
    """Return texts that differ where parameters or arrays differ."""
    texts = {name: repr(value) for name, value in parameters.items()}
    for name, array in arrays.items():
        if array is not None:
            values = np.ascontiguousarray(array)
            digest = blake2b(values.tobytes(), digest_size=16)
            texts[name] = f"{values.dtype} {values.shape} {digest.hexdigest()}"
    return texts


def _read(path: Path) -> Saved:
    try:
        tensors, texts = unpack(path.read_bytes())
        if texts.get("kind") != "checkpoint":
            raise ValueError("it is a model, not a checkpoint; greatcircle.load reads it")
        return Saved(
            int(texts["seed"]),
            json.loads(texts["of"]),
            _numbered(tensors, "state"),
            tuple(_record(values) for values in tensors["records"]),
            _numbered(tensors, "best") or None,
        )
    except (ValueError, KeyError) as error:
        raise ValueError(f"cannot resume from {path}: {error}") from error


def check_same(path: Path, saved: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raise ValueError unless the fingerprints of a file and of this fit are equal."""
    if differ := sorted(n for n in {*saved, *given} if saved.get(n) != given.get(n)):
        raise ValueError(
            f"{path} belongs to another fit, which differs in {', '.join(differ)}; use "
            "resume=False to start again, or another folder"
        )


def _numbered(tensors: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, ...]:
    count = sum(key.startswith(f"{name}.") for key in tensors)
    return tuple(tensors[f"{name}.{i}"] for i in range(count))


def _record(values: np.ndarray) -> Record:
    record = Record(*values.tolist())
    return record._replace(iteration=int(record.iteration), halvings=int(record.halvings))
