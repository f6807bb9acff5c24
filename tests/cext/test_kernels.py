"""The C kernels, each by its own test program, plain and under sanitizers; and mutants of them.

A program ``test_x.c`` runs cases that check themselves (``check.h``). It is built with gcc three
times: as shipped, under AddressSanitizer with UndefinedBehaviorSanitizer (S11), and under
ThreadSanitizer. A mutant is a patch under ``mutants/`` that breaks one safety rule in a copy of
``cext/``; its header names the case that must fail then, ``Killed-by: program case build``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CEXT = ROOT / "cext"
HERE = Path(__file__).resolve().parent
KERNELS = [
    "crc32c", "ring", "worker", "page", "flusher", "stay_awake", "mapping", "nursery", "batch",
    "bench_floor", "bench_floor_file",
]  # fmt: skip
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
COMPILE = ["-std=gnu11", "-g", "-fno-strict-aliasing", *WARNINGS]
BUILDS = {
    "plain": ["-O3"],
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
}
# Programs, and the system calls that each wraps at link time to look at them and make them fail.
PROGRAMS: dict[str, list[str]] = {
    "test_crc32c": [],
    "test_varint": [],
    "test_ring": [],
    "test_ring_hostile": [],
    "test_doorbell": [],
    "test_page": [],
    "test_flusher": ["fdatasync", "fsync", "msync"],
    "test_nursery": ["fdatasync", "fallocate", "pwrite"],
    "test_mapping": [],
    "test_histogram": [],
    "test_events": [],
    "test_bench_floor": [],
    "test_stay_awake": ["sched_setscheduler"],
}
MUTANTS = sorted((HERE / "mutants").glob("*.patch"))
RUN_SECONDS_MAX = 250
MUTANT_RUNS_MAX = 10
"""A mutant that loses a race now and then is run until it does."""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def run(command: list[str | Path], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=RUN_SECONDS_MAX,
        **options,
    )


def gcc(*arguments: str | Path) -> None:
    result = run(["gcc", *arguments])
    assert result.returncode == 0, result.stderr


class Builder:
    """Compiles each source once a build; objects of mutants are their own."""

    # directory: where objects and programs go. prefixes: how programs of a build are started.

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.prefix = lru_cache(maxsize=None)(self._prefix)
        self.object = lru_cache(maxsize=None)(self._object)

    def _prefix(self, build: str) -> list[str]:
        """How to start a program of this build; skips the test where its runtime does not work.

        ThreadSanitizer gives up on some layouts of the address space, so it gets a second try
        without randomization.
        """
        source, program = self.directory / "nothing.c", self.directory / f"nothing-{build}"
        source.write_text("int main(void) { return 0; }\n")
        result = run(["gcc", *BUILDS[build], source, "-o", program])
        for prefix in ([], ["setarch", "-R"]):
            if result.returncode == 0 and (not prefix or shutil.which(prefix[0])):
                if run([*prefix, program]).returncode == 0:
                    return prefix
        reason = (result.stderr.strip().splitlines() or ["its programs do not start here"])[-1]
        pytest.skip(f"no {build} sanitizer: {reason}")

    def _object(self, source: Path, include: Path, build: str) -> Path:
        name = f"{source.parent.name}-{source.stem}-{include.parent.name}-{build}.o"
        target = self.directory / name
        includes = [f"-I{include}", f"-I{HERE}"]
        gcc(*COMPILE, *BUILDS[build], *includes, "-c", source, "-o", target)
        return target

    def program(self, name: str, build: str, mutated: dict[str, Path] | None = None) -> Path:
        """Path of the program, linked with all kernels, those in ``mutated`` from there."""
        mutated = mutated or {}
        sources = [mutated.get(f"{kernel}.c", CEXT / f"{kernel}.c") for kernel in KERNELS]
        objects = [self.object(source, CEXT, build) for source in sources]
        target = self.directory / f"{name}-{build}-{'mutant' if mutated else 'shipped'}"
        wraps = [f"-Wl,--wrap={call}" for call in PROGRAMS[name]]
        main = self.object(HERE / f"{name}.c", CEXT, build)
        gcc(*BUILDS[build], *wraps, main, *objects, "-o", target, "-lpthread", "-lm")
        return target


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("kernels"))


def run_program(command: list[str | Path], directory: Path, seconds: int | None = None):
    environment = {
        **os.environ,
        "KF_TEST_DIR": str(directory),
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
        **({"KF_CASE_SECONDS": str(seconds)} if seconds else {}),
    }
    return run(command, env=environment)


def cases_of(program: str) -> set[str]:
    return set(re.findall(r'^    \{"(\w+)", \1\},$', (HERE / f"{program}.c").read_text(), re.M))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(builder: Builder, program: str, build: str, tmp_path: Path) -> None:
    prefix = builder.prefix(build)
    result = run_program([*prefix, builder.program(program, build)], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Sanitizer" not in result.stderr, result.stderr
    assert set(re.findall(r"^ok (\w+)$", result.stdout, re.M)) == cases_of(program) != set()


@pytest.mark.parametrize("patch", MUTANTS, ids=lambda path: path.stem)
def test_mutant_is_killed(builder: Builder, patch: Path, tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    killed_by = re.search(r"^Killed-by: (\w+) (\w+) (\w+)$", patch.read_text(), re.M)
    assert killed_by, f"{patch.name} does not say what kills it"
    program, case, build = killed_by.groups()
    assert case in cases_of(program)
    prefix = builder.prefix(build)
    copy = tmp_path / patch.stem / "cext"
    shutil.copytree(CEXT, copy)
    applied = run(["patch", "-p1", "-F0", "--no-backup-if-mismatch", "-i", patch], cwd=copy.parent)
    assert applied.returncode == 0, applied.stdout
    changed = re.findall(r"^\+\+\+ b/cext/(\w+\.c)$", patch.read_text(), re.M)
    assert changed, "a mutant changes a kernel's .c file"
    mutated = {}
    for name in changed:  # under a name of its own, so that its object is its own too
        mutated[name] = (copy / name).rename(copy / f"{patch.stem}-{name}")
    binary = builder.program(program, build, mutated)
    for _ in range(MUTANT_RUNS_MAX):
        result = run_program([*prefix, binary, case], tmp_path, seconds=3)
        if result.returncode:
            break
    assert result.returncode, f"{case} does not see: {patch.read_text()}"


def test_every_kernel_is_built_here() -> None:
    assert {path.stem for path in CEXT.glob("*.c")} == set(KERNELS)


def test_only_the_extension_with_the_guard_makes_guarded_copies() -> None:
    """mapping.h: the guard belongs to the extension, the handler to the process."""
    calls = re.compile(r"\b(kf_guarded_\w+|kf_batch_take_\w+)\(")
    installs, copies = set(), set()
    for path in (ROOT / "kraftfast").rglob("*.pyx"):
        code = re.sub(r"^cdef extern .*?(?=^\S)", "", path.read_text(), flags=re.M | re.S)
        if re.search(r"\bkf_guard_install\(", code):
            installs.add(path.name)
        if calls.search(code):
            copies.add(path.name)
    assert len(installs) <= 1 and copies <= installs, (installs, copies)
