"""The exported C beside a plain chain of `cblas_sgemv`, in one process run.

    python benchmarks/export.py [--write] [--check]

The paper's network 12-25-30-15-3 with ReLU in float32. Needs gcc and a CBLAS (libopenblas-dev);
clang and arm-none-eabi-gcc are measured if installed. Times are CPU time of one thread in
nanoseconds, the best of many short, interleaved runs.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from greatcircle import LipschitzRegressor
from greatcircle.datasets import ground_effect

RESULTS = Path(__file__).with_suffix(".json")
LIMITS = {"eval_ns": 1500, "eval_jac_ns": 10_000, "sgemv / eval": 0.5}
"""Largest times, and least speed beside the chain."""

WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion"]
CORTEX_M4 = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]

TIMING = """
#define _POSIX_C_SOURCE 199309L
#include "net.h"
#include <cblas.h>
#include <stdio.h>
#include <time.h>

static float w1[12 * 25], w2[25 * 30], w3[30 * 15], w4[15 * 3];

static void fill(float *w, int count)
{
    int i;
    for (i = 0; i < count; i++)
        w[i] = (float)((i * 37) % 101 - 50) / 200.0f;
}

static void layer(const float *w, int n, int m, const float *x, float *y)
{
    cblas_sgemv(CblasRowMajor, CblasTrans, n, m, 1.0f, w, m, x, 1, 0.0f, y, 1);
}

static void relu(float *h, int n)
{
    int j;
    for (j = 0; j < n; j++)
        h[j] = h[j] < 0 ? 0 : h[j];
}

static void chain(const float *x, float *y)
{
    float h1[25], h2[30], h3[15];
    layer(w1, 12, 25, x, h1);
    relu(h1, 25);
    layer(w2, 25, 30, h1, h2);
    relu(h2, 30);
    layer(w3, 30, 15, h2, h3);
    relu(h3, 15);
    layer(w4, 15, 3, h3, y);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Each call depends on the one before it, as in a control loop. */
#define BEST(best, count, call) do { \\
    int k; \\
    double t = now(); \\
    for (k = 0; k < (count); k++) { \\
        x[k % 12] += 1e-6f * y[0]; \\
        call; \\
    } \\
    t = (now() - t) / (count); \\
    best = t < best ? t : best; \\
} while (0)

int main(void)
{
    float x[12], y[3] = {0}, jac[36];
    double eval = 1e9, eval_jac = 1e9, sgemv = 1e9;
    int i, round;
    fill(w1, 12 * 25);
    fill(w2, 25 * 30);
    fill(w3, 30 * 15);
    fill(w4, 15 * 3);
    for (i = 0; i < 12; i++)
        x[i] = 0.1f * (float)i;
    for (round = 0; round < 200; round++) {
        BEST(eval, 2000, net_eval(x, y));
        BEST(eval_jac, 300, net_eval_jac(x, y, jac));
        BEST(sgemv, 2000, chain(x, y));
    }
    printf("%.1f %.1f %.1f", eval, eval_jac, sgemv);
    return 0;
}
"""


def run(*command: object, folder: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


def timed(folder: Path, compiler: str, *flags: str) -> dict[str, float]:
    run(compiler, *WARNINGS, *flags, "-c", "net.c", "-o", "net.o", folder=folder)
    command = (compiler, "-std=c99", "-O2", "timing.c", "net.o", "-lopenblas", "-lm")
    run(*command, "-o", "timing", folder=folder)
    eval_ns, jac_ns, sgemv_ns = map(float, run("./timing", folder=folder).split())
    return {
        "eval_ns": eval_ns,
        "eval_jac_ns": jac_ns,
        "sgemv_chain_ns": sgemv_ns,
        "sgemv / eval": round(sgemv_ns / eval_ns, 3),
    }


def on_cortex_m4(folder: Path) -> dict[str, object]:
    compiler = "arm-none-eabi-gcc"
    flags = [*WARNINGS, "-Os", "-ffreestanding", "-fstack-usage", *CORTEX_M4]
    run(compiler, *flags, "-c", "net.c", "-o", "arm.o", folder=folder)
    sizes = run("arm-none-eabi-size", "arm.o", folder=folder).splitlines()[1].split()
    lines = (folder / "arm.su").read_text().splitlines()
    stack = {line.split()[0].split(":")[-1]: int(line.split()[1]) for line in lines}
    return {
        "flags": " ".join(["-Os", *CORTEX_M4]),
        "flash_bytes": int(sizes[0]),
        "ram_bytes": int(sizes[1]) + int(sizes[2]),
        "stack_bytes": {name: stack[name] for name in ("net_eval", "net_eval_jac")},
    }


def measured() -> dict[str, object]:
    table = ground_effect.generate(2000)
    model = LipschitzRegressor((25, 30, 15), selection=False, max_iter=20, random_state=0)
    model.fit(table.X, table.y)
    results: dict[str, object] = {"network": "12-25-30-15-3, relu, float32", "limits": LIMITS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.export(folder / "net.c", dtype="float32")
        (folder / "timing.c").write_text(TIMING)
        for compiler in filter(shutil.which, ("gcc", "clang")):
            for level in ("-O2", "-O3"):
                results[f"{compiler} {level}"] = timed(folder, compiler, level)
        if shutil.which("arm-none-eabi-gcc"):
            results["arm-none-eabi-gcc"] = on_cortex_m4(folder)
    return results | {"machine": platform.machine()}


def failures(results: dict[str, object]) -> list[str]:
    found = []
    for build, times in results.items():
        if not isinstance(times, dict) or "eval_ns" not in times:
            continue
        for name, limit in LIMITS.items():
            good = times[name] >= limit if "/" in name else times[name] <= limit
            if not good:
                found.append(f"{build}: {name} is {times[name]}, the limit {limit}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--check", action="store_true", help="fail when a limit is passed")
    options = parser.parse_args()
    results = measured()
    print(json.dumps(results, indent=2))
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    if options.check and (found := failures(results)):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
