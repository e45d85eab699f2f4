"""Finished trials on disk: a selection that was cut short resumes with the same results.

One file in the folder of a checkpoint, written after each trial. A trial that was read from it is
not trained again; only if it is to be trained further, it is repeated first.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle._runtime.atomic import atomic_write
from greatcircle._runtime.container import SUFFIX, pack, unpack
from greatcircle.optimise.checkpoint import Checkpoint, check_same
from greatcircle.optimise.record import Record
from greatcircle.training.search import BatchPhase, Candidate
from greatcircle.training.trial import Run, Trial
from greatcircle.training.trials import Trials

__all__ = ["SavedTrials", "saved_seed"]

NAME = f"selection{SUFFIX}"


def saved_seed(checkpoint: Checkpoint, seed: int) -> int:
    """Return the seed of the fit to resume, or `seed` if there is none."""
    path = _path(checkpoint)
    if checkpoint.saved is not None:
        return checkpoint.saved.seed
    return int(_read(path)[1]["seed"]) if checkpoint.resume and path.exists() else seed


class SavedTrials:
    """Looks finished trials up in the file of a checkpoint, and adds to it.

    Parameters
    ----------
    checkpoint
        The checkpoint of the fit, or None to save nothing.
    trials
        What trains the candidates.
    """

    def __init__(self, checkpoint: Checkpoint | None, trials: Trials) -> None:
        self._checkpoint, self._trials = checkpoint, trials
        self._found: dict[tuple[Candidate, int], Trial] = {}
        if checkpoint is None or not checkpoint.resume or not _path(checkpoint).exists():
            return
        path = _path(checkpoint)
        tensors, texts = _read(path)
        check_same(path, json.loads(texts["of"]), dict(checkpoint.fingerprint or {}))
        for i, entry in enumerate(json.loads(texts["trials"])):
            trial = self._restored(f"{i}.", entry, tensors)
            self._found[trial.candidate, trial.length] = trial

    def start(self, candidate: Candidate, iterations: int, rival: Trial | None) -> Trial:
        """Return the trial of a candidate, from the file if it is there."""
        found = self._found.get((candidate, iterations))
        return found or self._saved(self._trials.start(candidate, iterations, rival))

    def extend(self, trial: Trial, iterations: int) -> Trial:
        """Return the trial after more iterations, from the file if it is there."""
        found = self._found.get((trial.candidate, iterations))
        return found or self._saved(self._trials.extend(trial, iterations))

    def _saved(self, trial: Trial) -> Trial:
        """Write the file with one more trial, and return it."""
        self._found[trial.candidate, trial.length] = trial
        if self._checkpoint is not None:
            tensors: dict[str, np.ndarray] = {}
            entries = []
            for i, saved in enumerate(self._found.values()):
                entry, arrays = _described(f"{i}.", saved)
                entries.append(entry)
                tensors |= arrays
            texts = {
                "kind": "selection",
                "seed": str(self._checkpoint.seed),
                "of": json.dumps(dict(self._checkpoint.fingerprint or {})),
                "trials": json.dumps(entries),
            }
            atomic_write(_path(self._checkpoint), pack(tensors, texts))
        return trial

    def _restored(self, prefix: str, entry: dict[str, Any], tensors: dict[str, Any]) -> Trial:
        runs = []
        for j, ended in enumerate(entry["ended"]):
            name = f"{prefix}{j}."
            evaluations, bound = tensors[f"{name}numbers"].tolist()
            weights = tuple(tensors[f"{name}weights.{k}"] for k in range(entry["layers"]))
            records = tuple(Record(*values) for values in tensors[f"{name}records"].tolist())
            records = tuple(r._replace(iteration=int(r.iteration)) for r in records)
            losses = tensors[f"{name}losses"]
            of_batches = entry.get("batch_records", [0] * len(entry["ended"]))[j]
            runs.append(Run(losses, ended, evaluations, bound, weights, records, of_batches))
        # Files written before there were small batches have no such entries.
        batches = entry.get("batches") and BatchPhase(*entry["batches"])
        candidate = Candidate(tuple(entry["hidden_layer_sizes"]), entry["target_gain"], batches)
        trial = self._trials.trial(candidate, entry["length"], runs)
        return replace(trial, hopeless=entry["hopeless"])


def _described(prefix: str, trial: Trial) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a trial as a JSON object and arrays."""
    tensors = {}
    for j, run in enumerate(trial.runs):
        name = f"{prefix}{j}."
        tensors[f"{name}losses"] = run.losses
        tensors[f"{name}numbers"] = np.array([run.evaluations, run.bound])
        records = np.array(run.records, np.float64).reshape(-1, len(Record._fields))
        tensors[f"{name}records"] = records
        tensors |= {f"{name}weights.{k}": w for k, w in enumerate(run.weights)}
    entry = {
        **trial.candidate._asdict(),
        "length": trial.length,
        "layers": len(trial.runs[0].weights),
        "ended": [run.ended for run in trial.runs],
        "batch_records": [run.batch_records for run in trial.runs],
        "hopeless": trial.hopeless,
    }
    return entry, tensors


def _path(checkpoint: Checkpoint) -> Path:
    return Path(checkpoint.folder) / NAME


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        tensors, texts = unpack(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"cannot resume from {path}: {error}") from error
    if texts.get("kind") != "selection":
        raise ValueError(f"cannot resume from {path}: it is not the file of a selection")
    return tensors, texts
