"""Inventory of all error messages: `messages.txt` has each call that fails and its message.

`python tests/test_messages.py` regenerates the file. Read what has changed as a new user would: a
message says what was given, what was expected, and what to try.
"""

import ast
import contextlib
import copy
import io
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import greatcircle
from greatcircle import activations, cli, losses, storage
from greatcircle._runtime.container import pack, unpack
from greatcircle.data.sources import Batches
from greatcircle.optimise.checkpoint import NAME
from greatcircle.training import trial_files
from messages_provoked import AREAS

LIST = Path(__file__).with_name("messages.txt")
SOURCE = Path(greatcircle.__file__).parent

NOT_PROVOKED = {
    "greatcircle.figures.tables:LearningCurves.__post_init__": "tests/figures/test_tables.py",
    "greatcircle.figures.tables:GridComparison.__post_init__": "tests/figures/test_tables.py",
    "greatcircle.report.evaluation:evaluate": "tests/report/test_evaluation.py",
    "greatcircle.report.page:TableBlock.__post_init__": "only reports make one, with whole rows",
    "greatcircle.datasets.download:fetch": "tests/datasets/test_downloads.py",
    "greatcircle.datasets.download:_download_checked": "tests/datasets/test_downloads.py",
    "greatcircle.datasets.neural_lander:_resample": "tests/datasets/test_neural_lander.py",
    "greatcircle.optimise.descent:_follow": "tests/objective/test_scale.py",
    "greatcircle.estimators.base:LipschitzEstimator.fit": "needs 100,000 rows; "
    "tests/training/test_selection.py",
    "greatcircle.training.settings:FitSettings.saturation_for": "needs 100,000 rows; "
    "tests/estimators/test_saturated_regressor.py",
    "greatcircle._runtime.extras:require": "needs a machine without an extra; "
    "tests/certificate/test_bounds.py",
    "greatcircle.cli:_run": "Ctrl-C; tests/cli/test_signals.py",
    "greatcircle.cli.signals:Handler._handle": "Ctrl-C; tests/cli/test_signals.py",
    "greatcircle.experiments.run:train": "Ctrl-C in a sweep; tests/experiments/test_sweep.py",
    "greatcircle.experiments.sweep:Store.writer": "tests/experiments/test_sweep.py",
}
"""Functions whose errors are not provoked here: the reason, or the test that checks them."""

Site = tuple[str, int]
"""A source file and a line number."""


class Provoked:
    """Messages of all cases, and the lines of source that raised them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sites: set[Site] = set()

    def note(self, error: BaseException | None) -> None:
        """Record where an exception and its causes were raised."""
        while error is not None:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            if trace is not None:
                self.sites.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
            if error.__cause__ is not None and error.__context__ is not error.__cause__:
                self.note(error.__cause__)
            error = error.__context__


class RecordedStderr(io.StringIO):
    """Standard error that records the exception handled while text is written."""

    encoding = "utf-8"

    def __init__(self, provoked: Provoked) -> None:
        super().__init__()
        self._provoked = provoked

    def write(self, text: str, /) -> int:
        self._provoked.note(sys.exception())
        return super().write(text)


def provoke(folder: Path) -> Provoked:
    """Run all cases, with their files in a folder."""
    provoked = Provoked()
    names = scene(folder)
    for heading, cases in AREAS.items():
        provoked.lines += [heading, "=" * len(heading), ""]
        for case in cases.strip().splitlines():
            said = command(case, provoked) if case.startswith("$") else call(case, names, provoked)
            shown = case if case.startswith("$") else f">>> {case}"
            provoked.lines += [shown, *(f"    {line}" for line in normalised(said, folder)), ""]
    return provoked


def call(case: str, names: dict[str, Any], provoked: Provoked) -> str:
    """Return the error or the warnings of a line of Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            eval(case, names)
        except Exception as error:
            provoked.note(error)
            return f"{type(error).__name__}: {error}"
    return "\n".join(f"{w.category.__name__}: {w.message}" for w in caught) or "nothing"


def command(case: str, provoked: Provoked) -> str:
    """Return what a command writes to standard error, and its exit code."""
    with contextlib.redirect_stderr(RecordedStderr(provoked)) as heard, muted():
        try:
            code = cli.main(case.split()[2:])
        except SystemExit as end:  # from the parser
            code = end.code
    said = heard.getvalue()
    usage = re.search(r"^greatcircle.*: error: ", said, re.MULTILINE)  # its usage comes first
    return f"{said[usage.start() if usage else 0 :].strip()}\nexit code {code}"


@contextlib.contextmanager
def muted() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def normalised(said: str, folder: Path) -> list[str]:
    """Return lines without what differs between machines.

    Long messages of other libraries are cut after the first line.
    """
    said = said.replace(str(folder), "FOLDER").replace(greatcircle.__version__, "VERSION")
    said = re.sub(r"0x[0-9a-f]{6,}", "0xADDRESS", said)
    said = re.sub(r"\d+\.\d{7,}", "NUMBER", said)
    said = re.sub(r"\(choose from .*\)", lambda m: m[0].replace("'", ""), said)
    lines = [line for line in said.splitlines() if line.strip()]
    foreign = len(lines) > 1 and not lines[-1].startswith(("exit code", "ConvergenceWarning"))
    return [lines[0], "…"] if foreign else lines


def scene(folder: Path) -> dict[str, Any]:
    """Return the names that the calls use, and write the files that they read.

    Small data, one fitted model of each kind, and files with one fault each.
    """
    names: dict[str, Any] = {name: getattr(greatcircle, name) for name in greatcircle.__all__}
    exec(
        "import numpy as np, jax.numpy as jnp, polars as pl\n"
        "import greatcircle\n"
        "import greatcircle.export\n"
        "from dataclasses import replace\n"
        "from greatcircle import callbacks, storage\n"
        "from greatcircle.optimise.random_batches import RandomBatches\n"
        "from greatcircle.optimise.schedules import GrowingBatches\n"
        "from greatcircle.training import initialisation\n"
        "from greatcircle.network.activations import declare\n"
        "from greatcircle.data import files\n"
        "from greatcircle.data.saturation import Saturation\n"
        "from greatcircle.datasets import ground_effect, neural_fly, neural_lander\n"
        "from greatcircle.datasets import Table\n"
        "from greatcircle.data.split import split\n"
        "from greatcircle.data.sources import Batches\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n",
        names,
    )
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    y = np.abs(X[:, 0]) + X[:, 1]
    names |= {"X": X, "y": y, "labels": np.where(y > np.median(y), "high", "low")}
    names |= {"hole": np.where(np.arange(36).reshape(12, 3) == 7, np.nan, X)}
    short = {"hidden_layer_sizes": (3,), "selection": False, "max_iter": 1, "random_state": 0}
    names["short"] = short
    model = greatcircle.LipschitzRegressor(**short).fit(X, y)
    classifier = greatcircle.LipschitzClassifier(**short).fit(X, names["labels"])
    network = greatcircle.Network((3, 3, 1))
    problem = greatcircle.Problem(network, X, y[:, None])
    names |= {"model": model, "classifier": classifier, "network": network, "problem": problem}
    names |= {"weights": network.initial_weights(0), "Mine": Mine, "Cube": Cube}
    names["paper"] = greatcircle.Scaling.fit("paper", X, y[:, None])
    names["tiny"] = replace(model.scaling_, divisor=1e-25, factor=1e-25)
    names |= {"interrupt": interrupt, "Own": Own, "changed": changed, "Gradient": Gradient}
    names |= {"certified_as": certified_as, "activated": activated}
    tanh = activations.declare(jnp.tanh, (0, 1))
    names["small"] = replace(model.scaling_, divisor=1e-60)
    names["steep"] = activations.declare(
        lambda z, xp: 0.3 * (xp.tanh(z) + z * (7 / 3)),
        (0, 1),
        name="steep",
        derivative=lambda z, a, xp: 0.3 * ((1 - xp.tanh(z) ** 2) + 7 / 3),
    )
    names["tanh"] = greatcircle.Network((3, 3, 1), tanh, bias=True)
    write_tables(folder, X, y)
    (folder / "folder.safetensors").mkdir()
    write_models(folder, model, classifier)
    write_checkpoints(folder, X, y, short)
    mapped = np.memmap(folder / "X.dat", np.float64, "w+", shape=X.shape)
    mapped[:] = X
    names["mapped"] = mapped
    stream = Batches([(X, y)])
    stream.draw(9)
    names["place"] = stream.position
    return names


def activated(model: Any, function: Any) -> Any:
    """Return a model whose activation has another function."""
    return replace(model.model_, activation=replace(model.model_.activation, function=function))


class Mine:
    """A user's objective."""

    def __init__(self, of_first: Any = None) -> None:
        self.of_first = of_first

    def loss(self, weights: Any) -> Any:
        if self.of_first:
            return self.of_first(weights[0])
        return sum((w**2).sum() for w in weights)


class Cube(losses.Squared):
    """A user's loss."""


class Gradient:
    """An objective without second derivatives."""

    unit = 1.0

    def value(self, weights: Any) -> Any:
        return sum((w**2).sum() for w in weights)

    def forward(self, weights: Any) -> tuple[Any, Any]:
        return self.value(weights), None

    def backward(self, weights: Any, cache: Any) -> tuple[Any, Any]:
        return [2 * w for w in weights], None


class Own(greatcircle.LipschitzRegressor):
    """A user's estimator."""


def interrupt(row: Any) -> None:
    raise KeyboardInterrupt


def write_tables(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    good = pl.DataFrame({"z": X[:, 0], "v": X[:, 1], "fz": y, "weather": "calm", "one": 7})
    good.write_csv(folder / "flight.csv")
    good.write_parquet(folder / "flight.parquet")
    good[:1].write_csv(folder / "row.csv")
    good.select("weather", "fz").write_csv(folder / "words.csv")
    late = pl.Series("kind", ["a", "b"] * 5 + ["c", "c"])
    good.with_columns(late).write_csv(folder / "late.csv")
    hole = pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise(pl.col("v")).alias("v")
    good.with_columns(hole).write_csv(folder / "hole.csv")
    good.with_columns(hole.cast(pl.String).alias("weather")).write_csv(folder / "label.csv")
    good.with_columns(pl.lit(True).alias("on")).write_parquet(folder / "switch.parquet")
    good.with_columns(pl.lit([1, 2]).alias("list"), pl.lit("a\0").alias("nul")).write_parquet(
        folder / "lists.parquet"
    )
    good.with_columns(pl.lit(1e200).alias("v")).write_csv(folder / "huge.csv")
    good.with_row_index("").write_csv(folder / "index.csv")
    (folder / "carriage.csv").write_text("z,fz\r1,2\r")
    (folder / "latin.csv").write_bytes("größe,fz\n1,2\n".encode("latin-1"))
    (folder / "utf16.csv").write_bytes("z,fz\n1,2\n".encode("utf-16-le"))
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("z,fz\n")
    (folder / "semicolons.csv").write_text("z;fz\n1;2\n")
    (folder / "commas.csv").write_text("z;fz\n1,5;2,5\n")
    (folder / "twice.csv").write_text("z,z,fz\n1,2,3\n")
    (folder / "numbers.csv").write_text("1,2\n3,4\n")
    (folder / "flight.xlsx").write_text("")
    (folder / "broken.parquet").write_text("no")
    (folder / "notes.txt").write_text("")
    (folder / "folder").mkdir()
    (folder / "occupied" / "report.html").mkdir(parents=True)
    (folder / "folder.c").mkdir()
    (folder / "flights").mkdir()
    fields = ("p", "v", "q", "pwm", "fa")
    for wind, cell in (("nowind", "x"), ("35wind", "[1]")):
        flight = pl.DataFrame({"t": [0.0]} | {name: [cell] for name in fields})
        flight.write_csv(folder / "flights" / f"custom_figure8_NF_{wind}.csv")


def write_models(folder: Path, model: Any, classifier: Any) -> None:
    """Write an intact file of each model, and copies with one fault each."""
    model.save(folder / "model.safetensors")
    classifier.save(folder / "classifier.safetensors")
    whole = (folder / "model.safetensors").read_bytes()
    for name, data in {
        "uncertified": storage.encoded(model, certified=False),
        "short": whole[:-9],
        "empty": b"",
        "text": b"a long enough text that is no model",
        "list": framed([1, 2]),
        "no JSON": whole[:9] + b"?" + whole[10:],
        "of another library": framed({"__metadata__": {"format": "pt"}}),
        "numbers as text": framed({"__metadata__": {"format": "greatcircle", "n": 1}}),
        "altered": whole[:-1] + bytes([whole[-1] ^ 1]),
        "newer": pack({}, {"format_version": "99", "versions": '{"greatcircle": "9.0"}'}),
        "newer, unknown": pack({}, {"format_version": "99"}),
    }.items():
        (folder / f"{name}.safetensors").write_bytes(data)
    (folder / "tampered").mkdir()
    both = {"r": unpack(whole), "c": unpack((folder / "classifier.safetensors").read_bytes())}
    for name, (kind, arrays, texts) in TAMPERED.items():
        data = pack(*tampered(*both[kind], arrays, texts))
        (folder / "tampered" / f"{name}.safetensors").write_bytes(data)
    for name, there, other in (("type", b'"F64"', b'"F8 "'), ("places", b"[0,", b"[8,")):
        data = resealed(whole.replace(there, other, 1))
        (folder / "tampered" / f"{name}.safetensors").write_bytes(data)


TAMPERED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "estimator": ("r", {}, {"estimator": "Pipeline"}),
    "no-estimator": ("r", {}, {"estimator": None}),
    "parameters": ("r", {}, {"parameters": "[]"}),
    "no-parameters": ("r", {}, {"parameters": "{"}),
    "unknown-parameter": ("r", {}, {"parameters": {"learning_rate": 0.1}}),
    "odd-parameter": ("r", {}, {"parameters": {"tol": {"pickle": "…"}}}),
    "odd-object": ("r", {}, {"parameters": {"loss": {"object": "os.system", "fields": {}}}}),
    "odd-number": ("r", {}, {"parameters": {"tol": {"numpy": "float32", "value": "1"}}}),
    "odd-type": ("r", {}, {"parameters": {"dtype": {"dtype": "object"}}}),
    "constant": ("r", {}, {"fit": "NaN"}),
    "activation": ("r", {}, {"network": {"activation": "gelu"}}),
    "no-network": ("r", {}, {"network": None}),
    "sizes": ("r", {}, {"network": {"sizes": [3, 3.0, 1]}}),
    "one-size": ("r", {}, {"network": {"sizes": [3]}}),
    "no-weights": ("r", {"weights.1": None}, {}),
    "shape": ("r", {"weights.1": np.ones((9, 9))}, {}),
    "infinite": ("r", {"weights.1": np.full((4, 1), np.inf)}, {}),
    "radii": ("r", {"radii": np.array([1.0, 2.0])}, {}),
    "scaling": ("r", {}, {"scaling": "minmax"}),
    "spread": ("r", {"scaling.spread": np.zeros(3)}, {}),
    "shift": ("r", {"scaling.shift": np.full(3, np.nan)}, {}),
    "range": ("r", {"saturation.output_lower": np.full(1, 1e9)}, {}),
    "half-range": ("r", {"saturation.output_lower": None}, {}),
    "n_features": ("r", {}, {"fit": {"n_features_in": 5}}),
    "names": ("r", {}, {"fit": {"feature_names_in": ["z"]}}),
    "target_names": ("r", {}, {"fit": {"target_names": [1]}}),
    "two-target-names": ("r", {}, {"fit": {"target_names": ["fx", "fz"]}}),
    "budget": ("r", {}, {"fit": {"lipschitz": -2.0}}),
    "networks": ("r", {}, {"fit": {"networks": 2}}),
    "candidates": ("r", {}, {"selection": "{}"}),
    "candidate": ("r", {}, {"selection": '{"candidates": [3]}'}),
    "candidate-layers": (
        "r",
        {},
        {"selection": '{"candidates": [{"hidden_layer_sizes": [2.5]}]}'},
    ),
    "candidate-loss": (
        "r",
        {},
        {"selection": '{"candidates": [{"hidden_layer_sizes": [3], "target_gain": "large"}]}'},
    ),
    "n_iter": ("r", {}, {"fit": {"n_iter": 5}}),
    "loss": ("r", {}, {"fit": {"loss": {"tuple": []}}}),
    "single": ("c", {}, {"estimator": "LipschitzRegressor", "fit": {"single_output": 1}}),
    "units": (
        "r",
        {
            "weights.0": np.ones((4, 3)),
            "weights.1": np.ones((4, 2)),
            "radii": np.sqrt([12.0, 8.0]),
            "scaling.target_shift": np.zeros(2),
        },
        {"network": {"sizes": [3, 3, 2]}},
    ),
    "classes": ("c", {}, {"classes": {"labels": ["low", "high"]}}),
    "labels": ("c", {}, {"classes": {"labels": [1, 2]}}),
    "fractions": ("c", {"classes": np.array([0.5, 1.5])}, {"classes": None}),
    "width": ("c", {}, {"classes": {"width": 1}}),
    "no-labels": ("c", {}, {"classes": None}),
    "more": ("r", {"payload": np.ones(3)}, {}),
    "certificate": ("r", {}, {"certificate": {"value": 1e-3}}),
    "tiny": ("r", {"scaling.spread": np.full(3, 1e-300), "scaling.factor": np.array(1e-300)}, {}),
}
"""Kind of model, and the arrays and texts that differ from its intact file."""


def tampered(tensors: Any, texts: Any, arrays: Any, words: Any) -> tuple[Any, Any]:
    """Replace arrays and texts: None removes one, a dictionary changes entries of a JSON text."""
    for name, value in words.items():
        if isinstance(value, dict):
            words = words | {name: json.dumps(json.loads(texts[name]) | value)}
    tensors, texts = tensors | arrays, texts | words
    return tuple({n: v for n, v in part.items() if v is not None} for part in (tensors, texts))


def framed(header: Any) -> bytes:
    """Return a file with a header and no arrays."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def resealed(data: bytes) -> bytes:
    """Return the file with the right checksum, which anyone can compute."""
    blank = re.sub(rb'"checksum":"[0-9a-f]{64}"', b'"checksum":"' + b"0" * 64 + b'"', data)
    digest = blake2b(blank, digest_size=32).hexdigest().encode()
    return blank.replace(b"0" * 64, digest, 1)


def write_checkpoints(folder: Path, X: np.ndarray, y: np.ndarray, short: dict[str, Any]) -> None:
    greatcircle.LipschitzRegressor(**short, checkpoint=folder / "begun").fit(X, y)
    whole = (folder / "begun" / NAME).read_bytes()
    tensors, texts = unpack(whole)
    last = f"state.{sum(name.startswith('state.') for name in tensors) - 1}"
    fewer = {name: t for name, t in tensors.items() if name != last}
    for name, data in {
        "damaged": whole[:-1] + bytes([whole[-1] ^ 1]),
        "of a model": (folder / "model.safetensors").read_bytes(),
        "of other layers": pack(fewer, texts),
    }.items():
        (folder / name).mkdir()
        (folder / name / NAME).write_bytes(data)
    for name, data in {
        "damaged selection": whole[:-1] + bytes([whole[-1] ^ 1]),
        "model for selection": (folder / "model.safetensors").read_bytes(),
    }.items():
        (folder / name).mkdir()
        (folder / name / trial_files.NAME).write_bytes(data)


def changed(model: Any, **attributes: Any) -> Any:
    """Return a copy with other attributes."""
    model = copy.deepcopy(model)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def certified_as(model: Any, value: float) -> Any:
    """Return a copy whose certificate claims another bound."""
    model = copy.deepcopy(model)
    claim = replace(model.certificate_, value=value)
    model.model_ = replace(model.model_, known_certificate=claim)
    return model


@pytest.fixture(scope="module")
def provoked(tmp_path_factory) -> Provoked:
    return provoked_in(tmp_path_factory.mktemp("scene").resolve())


def provoked_in(folder: Path) -> Provoked:
    with contextlib.chdir(folder):
        return provoke(folder)


def test_messages_txt_is_up_to_date(provoked):
    said = "\n".join(provoked.lines)
    assert said == LIST.read_text("utf-8"), (
        "run python tests/test_messages.py, and read what has changed"
    )


def test_every_raise_is_provoked(provoked):
    missing = [
        f"{place} ({Path(file).name}:{lines[0]})"
        for place, file, lines in raises()
        if place not in NOT_PROVOKED
        and not any(f == file and line in lines for f, line in provoked.sites)
    ]
    assert not missing, "add a case that provokes it: " + "\n".join(missing)


def test_functions_not_provoked_exist():
    assert set(NOT_PROVOKED) <= {place for place, *_ in raises()}


def raises() -> Iterator[tuple[str, str, range]]:
    """Yield module and function, file, and lines of each `raise` statement with an exception."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("greatcircle", *path.relative_to(SOURCE).with_suffix("").parts))
        for function, node in _raises_below(ast.parse(path.read_text("utf-8")), ()):
            place = f"{module.removesuffix('.__init__')}:{'.'.join(function)}"
            yield place, str(path), range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _raises_below(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[tuple, ast.Raise]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            yield inside, child
        named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        yield from _raises_below(child, (*inside, child.name) if named else inside)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as there:
        LIST.write_text("\n".join(provoked_in(Path(there).resolve()).lines), "utf-8")
