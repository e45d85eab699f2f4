"""Files of a fit: model, results, figures and report, written together or not at all.

A failure after training never loses the model: each stage that fails is reported, and the files of
the other stages are written. A model whose bound cannot be computed is written without a
certificate, next to any older result.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from greatcircle._runtime.atomic import atomic_write_all, check_replaceable
from greatcircle.cli import output
from greatcircle.cli.signals import Phase, handler
from greatcircle.estimators import files as estimator_files
from greatcircle.report import fit as report
from greatcircle.report.evaluation import Evaluation
from greatcircle.report.results import FitDescription, results

__all__ = ["MODEL", "PAGE", "RESULTS", "UNCERTIFIED", "FitFiles", "check", "make", "write"]

MODEL = "model.safetensors"
UNCERTIFIED = "uncertified.safetensors"
RESULTS = "results.json"
PAGE = "report.html"
NAMES = frozenset(
    {
        *(MODEL, UNCERTIFIED, RESULTS, PAGE),
        *(f"{stem}{suffix}" for stem in report.FIGURES for suffix in (".png", ".pdf")),
    }
)
"""Names of all files that a fit may write."""


@dataclass(frozen=True)
class FitFiles:
    """Files of a fit in memory, and the stages that failed."""

    files: Mapping[str, bytes]
    summary: Mapping[str, Any] | None
    """Content of `results.json`; None if the evaluation failed."""
    failures: Mapping[str, Exception]
    """Exceptions by the name of the stage."""

    @property
    def certified(self) -> bool:
        """Whether there is a model with its certificate."""
        return MODEL in self.files


def check(folder: Path) -> None:
    """Reject a folder in which one of the files could not be replaced."""
    check_replaceable(folder, NAMES)


def make(
    estimator: Any,
    evaluate: Callable[[], Evaluation],
    description: FitDescription,
    command: str,
) -> FitFiles:
    """Make the files of a fitted estimator, stage by stage."""
    files: dict[str, bytes] = {}
    failures: dict[str, Exception] = {}
    with _stage(MODEL, failures):
        files[MODEL] = estimator_files.encoded(estimator)
    if MODEL not in files:
        with _stage(UNCERTIFIED, failures):
            files[UNCERTIFIED] = estimator_files.encoded(estimator, certified=False)
        return FitFiles(files, None, failures)
    summary = None
    with _stage("evaluation", failures):
        evaluation = evaluate()
        summary = results(evaluation, description)
    if summary is None:
        return FitFiles(files, None, failures)
    with _stage("figures", failures):
        files |= report.figures(evaluation, description)
    with _stage(PAGE, failures):
        files[PAGE] = report.page(evaluation, description, summary, command)
    with _stage(RESULTS, failures):
        summary["files"] = sorted([*files, RESULTS])
        files[RESULTS] = output.json_bytes(summary)
    return FitFiles(files, summary, failures)


def write(folder: Path, made: FitFiles) -> tuple[list[Path], FitFiles]:
    """Write all files or, if that fails, the model alone.

    Returns
    -------
    The paths written, and the files with any failure added.
    """
    failures = dict(made.failures)
    attempts = [made.files] if made.files else []
    if made.certified:
        attempts.append({MODEL: made.files[MODEL]})
    for files in attempts:
        # An uncertified model is written next to an older result, which stays complete.
        older = _older_files(folder) if MODEL in files else set()
        with _stage("writing", failures), handler.deferred():
            atomic_write_all(folder, files, older)
            handler.enter(Phase.DONE)
            return [folder / name for name in files], replace(made, failures=failures)
    return [], replace(made, failures=failures)


@contextmanager
def _stage(name: str, failures: dict[str, Exception]) -> Iterator[None]:
    """Catch an exception and add it to the failures."""
    try:
        yield
    except Exception as error:
        failures.setdefault(name, error)


def _older_files(folder: Path) -> set[str]:
    """Return the files of an older result; unlisted files of the same names may be the user's."""
    try:
        listed = json.loads((folder / RESULTS).read_text("utf-8"))["files"]
        return {MODEL, UNCERTIFIED} | NAMES.intersection(listed)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {MODEL, UNCERTIFIED}
