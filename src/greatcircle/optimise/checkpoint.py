"""A fit that was cut short, on disk: enough to go on bit for bit.

A checkpoint holds the state of the descent, the records so far, and what the fit keeps beside them.
What follows from data, parameters and seed alone (scaling, network, validation part) is made anew;
a fingerprint makes sure that they are the same.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from greatcircle._runtime.atomic import atomic_write
from greatcircle._runtime.container import SUFFIX, pack, unpack
from greatcircle.geometry.sphere import Tree
from greatcircle.optimise.loop import Result, result_at
from greatcircle.optimise.record import Record
from greatcircle.optimise.watch import History, Watch

NAME = f"checkpoint{SUFFIX}"


class Saved(NamedTuple):
    """What a checkpoint holds."""

    seed: int
    of: dict[str, str]
    """The fingerprint."""
    leaves: tuple[np.ndarray, ...]
    """Of the state of the descent, in the order of JAX."""
    records: tuple[Record, ...]
    rows: tuple[Record, ...]
    best: tuple[np.ndarray, ...] | None
    """Weights of the lowest validation loss, where there is a validation part."""

    def state(self, like: Any) -> Any:
        """The state of the descent, in the form of another one of the same fit."""
        there, structure = jax.tree.flatten(like)
        if len(there) != len(self.leaves):
            raise ValueError(
                "the checkpoint's state does not fit this network and direction: another version "
                "of greatcircle may have written it; use resume=False to begin anew"
            )
        leaves = (
            int(leaf) if isinstance(other, int) else leaf
            for leaf, other in zip(self.leaves, there, strict=True)
        )
        return jax.tree.unflatten(structure, leaves)


class Checkpoint:
    """One file in a folder, written anew every so many seconds.

    Parameters
    ----------
    folder
        Where; made if it is not there.
    seconds
        Least time between two writes.
    resume
        Whether to read the checkpoint that is there.
    """

    saved: Saved | None = None
    """What was read; None where there was no checkpoint yet."""

    def __init__(self, folder: str | os.PathLike[str], seconds: float, resume: bool) -> None:
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise ValueError(
                f"checkpoint_seconds is {seconds!r}; expected a number that is not negative"
            )
        if not isinstance(folder, str | os.PathLike):
            raise ValueError(f"checkpoint is {folder!r}; expected the name of a folder, or None")
        self.path = Path(folder) / NAME
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ValueError(f"checkpoint is {str(folder)!r}, which is a file; expected a folder")
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.seconds, self._written = seconds, time.monotonic()
        if resume and self.path.exists():
            self.saved = self._read()

    def begin(self, seed: int, fingerprint: Mapping[str, str]) -> None:
        """Say which fit it is for; what was read of another one is refused.

        The fingerprint is of data and parameters, by name.
        """
        self.seed, self.fingerprint = seed, dict(fingerprint)
        other = self.saved.of if self.saved else self.fingerprint
        names = {*other, *self.fingerprint}
        if differs := sorted(n for n in names if other.get(n) != self.fingerprint.get(n)):
            raise ValueError(
                f"{self.path} is of another fit: {', '.join(differs)} differ; use resume=False to "
                "begin anew, or another folder"
            )

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._written >= self.seconds

    def write(
        self, state: Any, records: Sequence[Record], rows: Sequence[Record], best: Tree
    ) -> None:
        """All of it at once: a crash leaves the last checkpoint or this one."""
        leaves = jax.tree.leaves(jax.device_get(state))
        tensors = {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        tensors["records"] = np.array(records, np.float64).reshape(-1, len(Record._fields))
        tensors |= {f"history.{name}": column for name, column in History.of(rows).items()}
        if best is not None:
            tensors |= {f"best.{i}": np.asarray(w) for i, w in enumerate(jax.tree.leaves(best))}
        texts = {"kind": "checkpoint", "seed": str(self.seed), "of": json.dumps(self.fingerprint)}
        atomic_write(self.path, pack(tensors, texts))
        self._written = time.monotonic()

    def _read(self) -> Saved:
        try:
            tensors, texts = unpack(self.path.read_bytes())
            if texts.get("kind") != "checkpoint":
                raise ValueError("it is a model, no checkpoint; greatcircle.load reads it")
            of = json.loads(texts["of"])
        except (ValueError, KeyError) as error:
            raise ValueError(f"{self.path} cannot be resumed from: {error}") from error
        return Saved(
            int(texts["seed"]),
            of,
            _numbered(tensors, "state"),
            tuple(_record(values) for values in tensors["records"]),
            tuple(History({name: tensors[f"history.{name}"] for name in Record._fields}).rows()),
            _numbered(tensors, "best") or None,
        )


def checkpointed(
    checkpoint: Checkpoint, descent: Callable[..., Result], like: Any, unit: float, watch: Watch
) -> Result:
    """A descent, from a checkpoint where there is one, that writes checkpoints on the way.

    Parameters
    ----------
    checkpoint
        Where to.
    descent
        `descend`, or one like it, that needs only `state`, `records` and `keep`.
    like
        A state of the form that it has.
    unit
        Of its loss.
    watch
        Its callback, with the rows of the checkpoint.
    """
    state, records = None, ()
    if saved := checkpoint.saved:
        watch.best = saved.best
        state, records = saved.state(like), saved.records
        if watch.done():
            return result_at(state, unit, ("stopped", ""), records)

    def keep(state: Any, records: Sequence[Record]) -> None:
        if checkpoint.due():
            checkpoint.write(state, records, watch.rows, watch.best)

    result = descent(state=state, records=records, keep=keep)
    checkpoint.write(result.state, result.records, watch.rows, watch.best)
    return result


def fingerprint(parameters: Mapping[str, Any], **arrays: np.ndarray | None) -> dict[str, str]:
    """Text that differs where parameters or arrays do."""
    texts = {name: repr(value) for name, value in parameters.items()}
    for name, array in arrays.items():
        if array is not None:
            values = np.ascontiguousarray(array)
            digest = blake2b(values.tobytes(), digest_size=16)
            texts[name] = f"{values.dtype} {values.shape} {digest.hexdigest()}"
    return texts


def _numbered(tensors: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, ...]:
    count = sum(key.startswith(f"{name}.") for key in tensors)
    return tuple(tensors[f"{name}.{i}"] for i in range(count))


def _record(values: np.ndarray) -> Record:
    record = Record(*values.tolist())
    return record._replace(iteration=int(record.iteration), halvings=int(record.halvings))
