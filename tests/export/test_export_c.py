"""Exported C code, compiled with gcc, clang and a cross compiler."""

import os
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from exported import (
    CASES,
    LIMITS,
    WARNINGS,
    C,
    assert_jacobian,
    assert_near,
    broken,
    case,
    compiled,
    errors,
    handmade,
    inputs,
    outputs,
    program,
    run,
)
from greatcircle import LipschitzClassifier
from greatcircle.export import export, round_model
from small import ACTIVATION_NAMES

DTYPES = ("float64", "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "scaling"), CASES)
def test_gcc_agrees_with_numpy(activation, scaling, dtype, tmp_path):
    of = case(activation, scaling)
    export(of.model, tmp_path / "net.c", dtype=dtype)
    c = C(tmp_path / "net.c")
    x = inputs(of.model, dtype)
    assert_near(of, c(x, 3), x, LIMITS[dtype])
    y, jac = c(x, 3, jacobian=True)
    np.testing.assert_array_equal(y, c(x, 3))
    assert_jacobian(of, jac, x, 100 * LIMITS[dtype])
    assert c.self_test() == 0
    for found in c(broken(x), 3, jacobian=True):
        assert np.all(np.isnan(found))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scaling", ["standard", "paper"])
def test_clang_agrees_with_numpy(scaling, dtype, tmp_path):
    of = case("elu", scaling)
    export(of.model, tmp_path / "net.c", dtype=dtype)
    c = C(tmp_path / "net.c", "clang")
    x = inputs(of.model, dtype)
    assert_near(of, c(x, 3), x, LIMITS[dtype])
    assert c.self_test() == 0
    for found in c(broken(x), 3, jacobian=True):
        assert np.all(np.isnan(found))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-Os", "-O3"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(("activation", "scaling"), [c for c in CASES if not c.marks])
def test_every_level_of_optimisation(activation, scaling, compiler, level, tmp_path):
    of = case(activation, scaling)
    for dtype in DTYPES:
        export(of.model, tmp_path / f"{dtype}.c", dtype=dtype)
        c = C(tmp_path / f"{dtype}.c", compiler, level)
        x = inputs(of.model, dtype)
        assert_near(of, c(x, 3), x, LIMITS[dtype])
        assert c.self_test() == 0


@pytest.mark.parametrize(
    "options", [{"bias": False}, {"hidden": ()}, {"hidden": (1,)}, {"hidden": (33, 17), "bias": 0}]
)
def test_other_shapes(options, tmp_path):
    of = case(**options)
    export(of.model, tmp_path / "net.c")
    c, x = C(tmp_path / "net.c"), inputs(of.model, "float64", 500)
    y, jac = c(x, 3, jacobian=True)
    assert_near(of, y, x, 1e-12)
    near = of.model.jacobian(x[:200])
    assert np.median(np.abs(jac[:200] - near)) <= 1e-12 * np.max(np.abs(near))
    assert c.self_test() == 0


KINDS = [
    ((2, *hidden, 2), activation, scaling, bias, dtype)
    for activation in ACTIVATION_NAMES
    for hidden in ((), (2,), (1, 2), (2, 1, 2))
    for scaling in ("standard", "paper")
    for bias in (True, False)
    for dtype in DTYPES
]
"""Every activation, depth, scaling and precision, with and without biases."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    for i, (sizes, activation, scaling, bias, dtype) in enumerate(KINDS):
        export(handmade(sizes, activation, scaling, bias=bias), folder / f"net{i}.c", dtype=dtype)
    return [folder / f"net{i}.c" for i in range(len(KINDS))]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_kind_of_network_compiles_and_is_right(compiler, sources):
    library = compiled(sources, compiler)
    for kind, source in zip(KINDS, sources, strict=True):
        sizes, activation, scaling, bias, dtype = kind
        x = np.random.default_rng(2).standard_normal((5, 2)).astype(dtype)
        c = C(source, library=library)
        y, jac = c(x, 2, jacobian=True)
        np.testing.assert_array_equal(y, c(x, 2))
        model = handmade(sizes, activation, scaling, bias=bias)
        expected, _ = outputs(model, x)
        assert np.max(errors(y, expected, 1.0)) <= LIMITS[dtype], kind
        slopes = round_model(model, name="net").parameters.model.jacobian(x)
        assert np.max(np.abs(jac - slopes)) <= LIMITS[dtype] * np.max(np.abs(slopes)), kind
        for found in c(broken(x), 2, jacobian=True):
            assert np.all(np.isnan(found)), kind


def test_zero_stays_zero_where_rows_are_normalised(tmp_path):
    of = case("relu", "paper")
    export(of.model, tmp_path / "net.c")
    x = np.zeros((1, 12))
    y, jac = C(tmp_path / "net.c")(x, 3, jacobian=True)
    np.testing.assert_allclose(y, of.model.predict(x), rtol=1e-12)
    assert np.all(jac == 0)


def test_an_offset_that_dwarfs_its_spread_is_kept_in_single_precision(tmp_path):
    """An altitude of 1000.1 m ± 1 cm: the shift is stored in two parts."""
    of = case("tanh")
    scaling = of.model.scaling
    scaling = replace(scaling, shift=np.full(12, 1000.1), spread=np.full(12, 0.01))
    of = replace(of, model=replace(of.model, scaling=scaling))
    export(of.model, tmp_path / "net.c", dtype="float32")
    c, x = C(tmp_path / "net.c"), inputs(of.model, "float32", 1000)[:500]
    assert_near(of, c(x, 3), x, 1e-5)


def test_columns_that_do_not_vary_do_not_count(tmp_path):
    of = case()
    x = inputs(of.model, "float64", 500)[:10]
    x[:, 3] = 1e308
    spread = of.model.scaling.spread.copy()
    spread[3] = np.inf
    scaling = replace(of.model.scaling, spread=spread)
    of = replace(of, model=replace(of.model, scaling=scaling))
    export(of.model, tmp_path / "net.c")
    y, jac = C(tmp_path / "net.c")(x, 3, jacobian=True)
    assert_near(of, y, x, 1e-12)
    assert np.all(jac[:, :, 3] == 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_of_any_size_compile_or_are_refused(dtype, tmp_path):
    """Nothing is written if the precision cannot hold a number of the file or its self-test."""
    sizes, sources = (1e-37, 1e-23, 1.0, 1e23, 1e37), []
    for i, (activation, spread, unit) in enumerate(product(("relu", "tanh"), sizes, sizes)):
        for shift in (0.0, 10.0):  # of spreads
            model = handmade((2, 2, 2), activation)
            scaling = replace(
                model.scaling,
                shift=np.full(2, shift * spread),
                spread=np.full(2, spread),
                target_shift=np.full(2, unit),
                factor=1 / unit,
            )
            source = tmp_path / f"net{i}_{shift:.0f}.c"
            try:
                export(replace(model, scaling=scaling), source, dtype=dtype)
            except ValueError:
                assert not source.exists()
                continue
            sources.append(source)
    assert len(sources) == 100 if dtype == "float64" else 30 < len(sources) < 90
    library = compiled(sources, "gcc", "-O0", self_test=True)
    assert [C(source, library=library).self_test() for source in sources] == [0] * len(sources)


def test_the_header_is_cpp_and_y_may_be_x(tmp_path):
    export(case().model, tmp_path / "net.c")
    (tmp_path / "main.cpp").write_text(
        '#include "net.h"\n#include <cstdio>\n'
        "int main() { net_real x[NET_INPUTS] = {1, 2, 3}, y[NET_OUTPUTS];\n"
        "net_eval(x, y); net_eval(x, x); int same = 1;\n"
        "for (int j = 0; j < NET_OUTPUTS; j++) same &= x[j] == y[j];\n"
        'std::printf("%d %d %s", same, NET_LIPSCHITZ > 0, NET_MODEL_SHA256); }\n'
    )
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion"]
    run([program("gcc"), *WARNINGS, "-c", tmp_path / "net.c", "-o", tmp_path / "net.o"])
    command = [program("g++"), *flags, tmp_path / "main.cpp", tmp_path / "net.o", "-lm"]
    run([*command, "-o", tmp_path / "main"])
    same, positive, digest = run([tmp_path / "main"]).split()
    assert (same, positive) == ("1", "1")
    assert digest == case().model.certificate.digest


def test_names_with_special_characters_in_c(tmp_path):
    names = ['a*/ "b"', "/* no", "δ [m/s²]", "??/", "tab\there", "\\", "%s", "new\nline"]
    names += ["x", "end\\", "'", "//"]
    targets = ("*/ int x;", "µ", "fz")
    model = replace(case().model, feature_names=tuple(names), target_names=targets)
    export(model, tmp_path / "net.c", units={"µ": "*/", "δ [m/s²]": "\\"})
    for compiler in ("gcc", "clang"):
        c = C(tmp_path / "net.c", compiler)
        assert c.names("input", 12) == names
        assert c.names("output", 3) == list(targets)


def test_two_exports_do_not_mix(tmp_path):
    export(case().model, tmp_path / "net.c")
    old = (tmp_path / "net.h").read_text()
    export(case("tanh").model, tmp_path / "net.c")
    (tmp_path / "net.h").write_text(old)
    with pytest.raises(AssertionError, match="header and source are of different exports"):
        C(tmp_path / "net.c")


def test_fast_math_is_refused(tmp_path):
    export(case().model, tmp_path / "net.c")
    with pytest.raises(AssertionError, match="compile without -ffast-math"):
        C(tmp_path / "net.c", "gcc", "-ffast-math")


def test_no_heap_and_no_mutable_data(tmp_path):
    export(case("tanh").model, tmp_path / "net.c")
    out = tmp_path / "net.o"
    run([program("gcc"), *WARNINGS, "-O2", "-fno-pie", "-c", tmp_path / "net.c", "-o", out])
    kinds = {line.split()[-1]: line.split()[-2] for line in run(["nm", out]).splitlines()}
    assert not [name for name, kind in kinds.items() if kind in "dDbBC"]
    assert {name for name, kind in kinds.items() if kind == "U"} <= {"tanh", "memset", "memcpy"}
    source = (tmp_path / "net.c").read_text()
    assert set(re.findall(r"^#include .*", source, re.MULTILINE)) == {
        '#include "net.h"',
        "#include <math.h>",
    }


FUZZ = """
#include "net.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned long long state = 88172645463325252ULL;
static unsigned long long next(void)
{
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
int main(void)
{
    long round, broken = 0;
    for (round = 0; round < ROUNDS; round++) {
        net_real *x = malloc(NET_INPUTS * sizeof *x), *y = malloc(NET_OUTPUTS * sizeof *y);
        net_real *jac = malloc(NET_INPUTS * NET_OUTPUTS * sizeof *jac);
        int i, finite = 1;
        if (!x || !y || !jac) return 2;
        for (i = 0; i < NET_INPUTS; i++) {
            unsigned long long bits = next();
            if (round % 2) bits &= 0xBFFFFFFFBFFFFFFFULL; /* no NaN, no infinity */
            memcpy(&x[i], &bits, sizeof x[i]);
            if (round % 10 == 3 && i == (int)(next() % NET_INPUTS)) x[i] = (net_real)INFINITY;
            finite = finite && isfinite(x[i]);
        }
        if (round % 8) net_eval(x, y); else net_eval_jac(x, y, jac);
        for (i = 0; i < NET_OUTPUTS; i++)
            if (!finite && !isnan(y[i])) return 1;
        broken += !finite;
        free(x); free(y); free(jac);
    }
    printf("%ld", broken);
    return net_self_test();
}
"""


@pytest.mark.parametrize("rounds", [2_000, pytest.param(200_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("activation", "scaling", "dtype"),
    [("relu", "standard", "float32"), ("elu", "paper", "float64")],
)
def test_sanitisers_find_nothing_in_a_fuzzed_run(activation, scaling, dtype, rounds, tmp_path):
    export(case(activation, scaling).model, tmp_path / "net.c", dtype=dtype)
    (tmp_path / "fuzz.c").write_text(FUZZ)
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    (tmp_path / "none.c").write_text("int main(void) { return 0; }\n")
    command = [program("gcc"), *flags]
    try:
        run([*command, tmp_path / "none.c", "-o", tmp_path / "none"])
        run([tmp_path / "none"])
    except AssertionError as error:
        pytest.skip(f"gcc has no sanitisers on this machine: {error}")
    define = ["-DNET_SELF_TEST", f"-DROUNDS={rounds}"]
    sources = [tmp_path / "net.c", tmp_path / "fuzz.c"]
    run([*command, *define, *sources, "-lm", "-o", tmp_path / "fuzz"])
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    assert int(run([tmp_path / "fuzz"], env=environment)) > rounds / 20


def test_it_builds_for_a_microcontroller(tmp_path, capsys):
    compiler = program("arm-none-eabi-gcc")
    export(case().model, tmp_path / "net.c", dtype="float32")
    target = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
    out = tmp_path / "net.o"
    flags = [*WARNINGS, "-Os", "-ffreestanding", "-fstack-usage", *target]
    run([compiler, *flags, "-c", tmp_path / "net.c", "-o", out])
    text, data, bss = map(int, run(["arm-none-eabi-size", out]).splitlines()[1].split()[:3])
    stack = (tmp_path / "net.su").read_text()
    with capsys.disabled():
        used = {line.split(":")[-1].split()[0]: line.split()[1] for line in stack.splitlines()}
        print(f"\nCortex-M4, 12-25-30-15-3 in float32: {text} bytes of flash, stack {used}")
    assert text < 12_000
    assert data == bss == 0
    assert "dynamic" not in stack
    left = {line.split()[-1] for line in run(["arm-none-eabi-nm", "-u", out]).splitlines()}
    assert left <= {"memset", "memcpy"}


def test_a_classifier_exports_logits(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = LipschitzClassifier((5,), selection=False, max_iter=3, random_state=0)
    model.fit(X, np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)])
    export(model, tmp_path / "net.c")
    c = C(tmp_path / "net.c")
    np.testing.assert_allclose(c(X, 3), model.decision_function(X), rtol=1e-10, atol=1e-12)
    assert c.names("output", 3) == ["logit_a", "logit_b", "logit_c"]
    assert "logits of a classifier" in (tmp_path / "net.h").read_text()
