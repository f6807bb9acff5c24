"""Builds the Cython modules and the C kernels of kraftfast. All else is in pyproject.toml."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import Any, NoReturn

import Cython
from Cython.Build import cythonize
from Cython.Compiler import Dataclass
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def refuse_what_cannot_work() -> None:
    """End the build with one line, and what to do, where it could only fail or make a package that
    does not run: before anything is generated."""
    if sys.version_info < (3, 11) or sys.implementation.name != "cpython":
        refuse(
            f"kraftfast needs CPython 3.11 or later, and this is {sys.implementation.name} "
            f"{platform.python_version()}: use another interpreter, for example "
            "`uv venv --python 3.13`"
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        refuse(
            "kraftfast does not support free-threaded Python: use the ordinary build of "
            f"CPython {sys.version_info.major}.{sys.version_info.minor}"
        )
    if not sys.platform.startswith("linux"):
        refuse(f"kraftfast needs Linux, and this is {sys.platform}: build it in a container or VM")
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc").split()[0]
    if shutil.which(compiler) is None:
        refuse(
            f"there is no C compiler ({compiler}): install one, for example `apt install gcc "
            "libc6-dev`, or name another with CC=..."
        )
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        refuse(
            f"there is no {header}: install the headers of Python, for example `apt install "
            f"python{sys.version_info.major}.{sys.version_info.minor}-dev`"
        )


def refuse(reason: str) -> NoReturn:
    raise SystemExit(f"setup.py: {reason}")


BUILDING = {"build", "build_ext", "bdist_wheel", "develop", "editable_wheel", "install"}
DESCRIBING = {"dist_info", "egg_info", "sdist"}  # nothing is compiled; pip asks before it builds
if (BUILDING | DESCRIBING - {"sdist"}) & set(sys.argv):
    refuse_what_cannot_work()

MAPPING = ["cext/mapping.c", "cext/page.c", "cext/crc32c.c"]
BATCH = ["cext/batch.c", *MAPPING]
THREAD = ["cext/worker.c", "cext/ring.c"]

# C sources that are linked into an extension, by the module's dotted name.
KERNELS: dict[str, list[str]] = {
    "kraftfast.bench.floor_kernel": [
        "cext/bench_floor.c",
        "cext/bench_floor_file.c",
        "cext/crc32c.c",
    ],
    "kraftfast.ring.spsc": ["cext/ring.c", "cext/crc32c.c"],
    "kraftfast.log.segment_file": MAPPING,
    "kraftfast.log.segment": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.log.scan": BATCH,
    "kraftfast.log.idempotence.producers": BATCH,
    "kraftfast.log.nursery": ["cext/nursery.c", *THREAD, *MAPPING],
    "kraftfast.log.log": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.log.cutting": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.log.used_again": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.log.snapshots.log_start": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.node.threads.flusher": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.node.rings.ring_producers": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.node.idle": ["cext/flusher.c", "cext/stay_awake.c", *THREAD, *MAPPING],
    "kraftfast.node.rings.ring_fetch": ["cext/flusher.c", *THREAD, *BATCH],
    "kraftfast.client.producer.identity": BATCH,
    "kraftfast.client.producer.ring_sender": ["cext/ring.c"],
    "kraftfast.record.batch": BATCH,
    "kraftfast.record.builder": BATCH,
    "kraftfast.record.checksum": ["cext/crc32c.c"],
    "kraftfast.record.columns": BATCH,
    "kraftfast.record.headers": BATCH,
    "kraftfast.sim.machines.paged_file": ["cext/flusher.c", *THREAD, *BATCH],
}


def found(pattern: str) -> list[str]:
    """Return the files of ``pattern``. End the build if there are none.

    Without this check a source tree without them would make a package that cannot be imported.
    """
    paths = sorted(glob(pattern, recursive=True))
    if not paths:
        raise SystemExit(
            f"setup.py: no file matches {pattern} in {os.getcwd()}: the source tree is incomplete"
        )
    return paths


# core/ and node/ modules that are compiled from their .py through an augmenting .pxd.
AUGMENTED = [
    path[:-4] + ".py"
    for path in (*found("kraftfast/core/**/*.pxd"), *found("kraftfast/node/**/*.pxd"))
    if os.path.exists(path[:-4] + ".py") and not path.endswith("__init__.pxd")
]

COMPILE = ["-std=gnu11", "-fvisibility=hidden"]
COMPILE += ["-fstack-protector-strong", "-fno-strict-aliasing"]
COMPILE += ["-fno-plt"]  # calls of Python's functions without stubs: 1 % of a module
SANITIZE = os.environ.get("KRAFTFAST_SANITIZE")  # "address,undefined" or "thread": for suites
DEBUG = bool(os.environ.get("KRAFTFAST_DEBUG"))  # for gdb: names and lines, little is moved
if SANITIZE:
    COMPILE += ["-g", f"-fsanitize={SANITIZE}"]
    LINK = [f"-fsanitize={SANITIZE}"]
elif DEBUG:
    COMPILE += ["-g"]
    LINK = []
else:
    COMPILE += ["-g0", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
    LINK = ["-Wl,-s", "-Wl,--gc-sections"]  # no names of what is static, no kernels that go unused
    # two parts to map, not four, and no id that only a debugger looks up: 4 % of what is installed
    LINK += ["-Wl,-z,noseparate-code", "-Wl,--build-id=none"]
# Each setting has its own modules.
BUILT = os.path.join("build", SANITIZE or ("debug" if DEBUG else "plain"))


# What every record, batch or wake-up goes through. The C kernels beneath have -O3.
HOT = {
    "kraftfast.buffer",
    "kraftfast.client.producer.appender",
    "kraftfast.client.producer.outcomes",
    "kraftfast.client.producer.ring_sender",
    "kraftfast.client.producer.sender",
    "kraftfast.log.log",
    "kraftfast.log.idempotence.producers",
    "kraftfast.log.scan",
    "kraftfast.log.segment",
    "kraftfast.node.rings.ring_producers",
    "kraftfast.node.rings.ring_fetch",
    "kraftfast.record.batch",
    "kraftfast.record.builder",
    "kraftfast.record.columns",
    "kraftfast.record.digest",
    "kraftfast.record.encode",
    "kraftfast.record.headers",
    "kraftfast.record.rows",
    "kraftfast.ring.spsc",
}
# Of all else, each commit or each request over a socket goes through these: with -Og a commit takes
# up to a fifth longer.
WARM = (
    "kraftfast.core.log_view",
    "kraftfast.core.replica",
    "kraftfast.core.replication.",
    "kraftfast.core.request_manager",
    "kraftfast.core.state",
    "kraftfast.core.trail",
    "kraftfast.link.stats",
    "kraftfast.node.loop",
    "kraftfast.node.node",
    "kraftfast.node.rings.",
    "kraftfast.wire.",
)
# -Og is the quickest; without another order of blocks such a module is 4 % smaller
LEVELS = {
    "kernels": ["-O3"],
    "hot": ["-O2"],
    "warm": ["-O1"],
    "rest": ["-Og", "-fno-reorder-blocks"],
}
if DEBUG:
    LEVELS = dict.fromkeys(LEVELS, ["-Og"])


def module_name(path: str) -> str:
    return os.path.splitext(path)[0].replace("/", ".")


def optimisation(module: str) -> list[str]:
    """Return the compiler's options for how much a module is used."""
    if module in HOT:
        return LEVELS["hot"]
    return LEVELS["warm" if module.startswith(WARM) else "rest"]


def object_of(kernel: str) -> str:
    """Return where the object of a C source is: compiled once, linked wherever it is wanted."""
    return os.path.join(BUILT, "objects", os.path.splitext(kernel)[0] + ".o")


SHARED = "kraftfast._cyutility"  # what Cython would put into each module again
LEFT_OUT = ["MemoryView"]  # of it: compiled code holds buffers by kraftfast.buffer


def extension(path: str) -> Extension:
    name = module_name(path)
    return Extension(
        name,
        [path],
        include_dirs=["cext"],
        depends=found("cext/*.h"),
        extra_compile_args=COMPILE + optimisation(name),
        extra_objects=[object_of(kernel) for kernel in KERNELS.get(name, [])],
        extra_link_args=[*LINK, "-lpthread"],
    )


class Note:
    """A file that says from what something was made, once it was made to its end.

    The age of files does not tell: an archive that is unpacked over a tree brings old ones, and
    what was interrupted looks new.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> dict[str, str] | None:
        """Return what is noted: {} after an interruption, None if there is no note."""
        try:
            with open(self.path) as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            return {}

    def write(self, made_of: dict[str, str]) -> None:
        """Note this; {} before something is made."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(f"{self.path}.new", "w") as file:
            json.dump(made_of, file)
        os.replace(f"{self.path}.new", self.path)


def contents(paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file."""
    return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}


class BuildExtensions(build_ext):
    """Builds each extension once, whoever asks for it: pip gives an editable installation a new
    temporary folder, and would compile all that an ordinary one has compiled in this tree.

    The objects of each extension have a folder of their own: several are built at once.
    """

    def build_extensions(self) -> None:
        kernels = sorted({path for paths in KERNELS.values() for path in paths})
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.build_kernel, kernels))
        super().build_extensions()

    def build_kernel(self, path: str) -> None:
        """Compile one C source, unless that was done."""
        made = object_of(path)
        options = [*COMPILE, *LEVELS["kernels"], "-ffunction-sections", "-fdata-sections"]
        note = Note(f"{made}.made-of")
        made_of = contents([path, *found("cext/*.h")])
        made_of["command"] = repr([self.compiler.compiler_so, options])
        if note.read() == made_of and os.path.exists(made):
            return
        note.write({})
        self.compiler.compile(
            [path],
            output_dir=os.path.join(BUILT, "objects"),
            include_dirs=["cext"],
            extra_postargs=options,
        )
        note.write(made_of)

    def build_extension(self, ext: Extension) -> None:
        own = copy.copy(self)
        own.force = True
        own.build_temp = os.path.join(BUILT, "objects", ext.name)
        own.build_lib = os.path.join(BUILT, "modules")
        made = own.get_ext_fullpath(ext.name)
        note = Note(f"{made}.made-of")
        made_of = contents([*ext.sources, *ext.extra_objects, *found("cext/*.h")])
        made_of["command"] = repr(
            [self.compiler.compiler_so, self.compiler.linker_so]
            + [ext.extra_compile_args, ext.extra_link_args, ext.include_dirs]
        )
        if note.read() != made_of or not os.path.exists(made):
            note.write({})
            build_ext.build_extension(own, ext)
            note.write(made_of)
        target = self.get_ext_fullpath(ext.name)
        self.mkpath(os.path.dirname(target))
        self.copy_file(made, target)


SOURCES = sorted([*found("kraftfast/**/*.pyx"), *AUGMENTED])
for name in sorted((KERNELS.keys() | HOT) - set(map(module_name, SOURCES))):
    raise SystemExit(f"setup.py: {name} has no source: the source tree is incomplete")

GENERATED = os.path.join("build", f"cython-{Cython.__version__}")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,  # S11
    "cdivision": True,
    "annotation_typing": False,
    "embedsignature": True,
    "auto_pickle": False,
}


SET_UP_FIELDS = "_set_up_dataclass_fields"
set_up_fields = getattr(Dataclass, SET_UP_FIELDS, None)  # of Cython 3.3


def set_up_defaults(*class_and_fields: Any) -> list[Any]:
    """Let a compiled dataclass have ``__match_args__`` alone, and no ``__dataclass_fields__``.

    What makes those when a module is imported is a third of a module with many fields. From a
    Cython that makes them otherwise they are kept.
    """
    assert set_up_fields is not None
    statements = set_up_fields(*class_and_fields)
    names = [getattr(getattr(each, "lhs", None), "name", "") for each in statements]
    kept = names.index("__dataclass_fields__") if "__dataclass_fields__" in names else len(names)
    return list(statements[:kept])


if set_up_fields is not None:
    setattr(Dataclass, SET_UP_FIELDS, set_up_defaults)


def generated(path: str) -> str:
    """Return the C file of a source."""
    return os.path.join(GENERATED, os.path.splitext(path)[0] + ".c")


def must_generate_all(made_of: dict[str, str], before: dict[str, str]) -> bool:
    """Return whether Cython, which goes by the age of files, would leave out what has changed.

    So it would where a changed file is not newer than the C, is gone, or is none (``directives``);
    after an interruption all have changed.
    """
    paths = made_of.keys() | before.keys()
    changed = {path for path in paths if before.get(path) != made_of.get(path)}
    newest = date_what_is_current(paths - changed - {"directives"})
    return any(not os.path.exists(path) or os.stat(path).st_mtime_ns <= newest for path in changed)


def date_what_is_current(unchanged: Iterable[str]) -> int:
    """Date the C by the newest file that it was made of and that is unchanged; return that age.

    Cython's own declarations are among them: pip dates them anew where it installs the same version
    again, as after an isolated build, and Cython would generate everything once more.
    """
    own = os.path.join(os.path.dirname(Cython.__file__), "Includes", "**", "*.pxd")
    made = [path for path in map(generated, SOURCES) if os.path.exists(path)]
    current = [*made, *unchanged, *glob(own, recursive=True)]
    newest = max(os.stat(path).st_mtime_ns for path in current)
    for path in made:
        os.utime(path, ns=(newest, newest))
    return newest


def longest_first(generated_extensions: list[Extension]) -> list[Extension]:
    """Return them sorted by the size of their C, so that no long compilation ends alone."""
    return sorted(generated_extensions, key=lambda each: -os.path.getsize(each.sources[0]))


def extensions() -> list[Extension]:
    """Return what is compiled: from C, generated now or by an earlier build of this tree.

    Cython's own check asks for the age of its own files too, and pip installs those anew for each
    build: it would generate, and the compiler compile, everything again.
    """
    sources = [*SOURCES, SHARED.replace(".", "/") + ".c"]
    wanted = [extension(path) for path in sources]
    if DESCRIBING & set(sys.argv) and not BUILDING & set(sys.argv):
        return wanted
    note = Note(os.path.join(GENERATED, "made-of"))
    made_of = contents([*SOURCES, *found("kraftfast/**/*.pxd")])
    made_of["directives"] = repr((DIRECTIVES, SHARED, LEFT_OUT, "no __dataclass_fields__"))
    before = note.read()
    if before == made_of and all(os.path.exists(generated(path)) for path in sources):
        for each in wanted:
            each.sources = [generated(source) for source in each.sources]
        return longest_first(wanted)
    note.write({})
    made = cythonize(
        wanted,
        build_dir=GENERATED,
        nthreads=os.cpu_count() or 1,
        force=before is not None and must_generate_all(made_of, before),
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=SHARED,
        shared_utility_features_disabled=LEFT_OUT,
    )
    note.write(made_of)
    return longest_first(made)


setup(
    package_dir={"": "."},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtensions},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
