"""What ``/metrics`` shows, pushed by OTLP over HTTP as OpenTelemetry's ``OTEL_*`` variables say.

A thread of the process of ``/metrics`` does it: a collector that is away costs the replicas
nothing. ``otlp_data.py`` has what is pushed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from kraftfast.live.pages import Sample

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEADERS = ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
SECRET_CHARACTERS_MIN = 4
"""A shorter value of a header is found in any text."""
CREDENTIAL_PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_METRICS_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)
"""They name a session of the user's own."""
WARNINGS_MAX = 10
PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
EXPORTERS = "OTEL_METRICS_EXPORTER"
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS, INTERVAL_MS_MIN, INTERVAL_MS_MAX = 60_000, 100, 86_400_000
NO_URL = (
    "{name} is no URL of http or https; in a user or password write @ / ? # [ ] as %40 and so on"
)
LAST_PUSH_S = 3.0
"""At the end a collector that does not answer is left after this."""
NEEDS_LISTENER = "it needs --metrics-listen"
MISSING = "it needs OpenTelemetry's exporter: pip install 'kraftfast[otlp]'"


def endpoint(environment: Mapping[str, str]) -> str:
    """Return where metrics are to be pushed, "" if nowhere."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporters = (environment.get(EXPORTERS) or "otlp").split(",")
    if off or "otlp" not in [each.strip() for each in exporters]:
        return ""
    return _first(environment, ENDPOINTS)[1]


def shown(environment: Mapping[str, str]) -> str:
    """Return the endpoint without user and password, as it may be told.

    Raises ValueError, which quotes nothing, if it is no URL of HTTP.
    """
    name, url = _first(environment, ENDPOINTS)
    try:
        parts = urlsplit(url)
        well = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        well = False
    if not well or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(NO_URL.format(name=name)) from None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def secrets(environment: Mapping[str, str]) -> list[str]:
    """Return what must not be told: user and password of an endpoint, and values of headers.

    The longest are first. The endpoint must be one that :func:`shown` takes.
    """
    login, at, _ = urlsplit(endpoint(environment)).netloc.rpartition("@")
    found = {login + at} if at else set()
    for header in ",".join(environment.get(name, "") for name in HEADERS).split(","):
        for value in (header.strip(), header.partition("=")[2].strip()):  # it may have no name
            if len(value) >= SECRET_CHARACTERS_MIN:
                plain = unquote(value).strip()
                found |= {value, plain, repr(plain)[1:-1]}  # an error quotes it one way or another
    return sorted(found - {""}, key=len, reverse=True)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """Return the first of the variables that says something, and what; both are "" if none does."""
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))


def interval_ms(environment: Mapping[str, str]) -> int:
    """Return how often to push. Raises ValueError, also for a protocol that is not spoken."""
    protocol = _first(environment, PROTOCOLS)[1] or PROTOCOL
    if protocol != PROTOCOL:
        raise ValueError(f"the protocol {protocol} is not spoken, only {PROTOCOL}")
    text = environment.get(INTERVAL) or str(INTERVAL_MS)
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
    if not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
        raise ValueError(f"{INTERVAL}={text}: {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} is expected")
    return value


class Pusher:
    """Pushes what ``look`` returns until it is closed. ``tell`` takes events."""

    # endpoint: where to, as it may be told. fails: whether the last push did, which is told once.
    # _why: what the exporter said of a failure. _thread: None where nothing is pushed. _closing:
    # set once it is to end.

    def __init__(
        self, look: Callable[[], list[Sample]], cluster_id: str, tell: Callable[..., None]
    ) -> None:
        self.look, self.cluster_id, self.tell = look, cluster_id, tell
        self.endpoint = ""
        self.fails = False
        self._why = _Words()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin, if the environment asks for it; tell why not, where that cannot be."""
        if not endpoint(os.environ):
            return
        try:
            every_ms = interval_ms(os.environ)
            exporter = self._exporter()
        except ImportError:
            self.tell("otlp_off", why=MISSING)
        except Exception as error:  # noqa: BLE001 - the library's, of what a variable holds
            self.tell("otlp_off", why=self._why.plain(str(error)))
        else:
            run = (exporter, every_ms / 1000)
            name = "kraftfast-otlp"
            self._thread = threading.Thread(target=self._run, args=run, name=name, daemon=True)
            self._thread.start()
            self.tell("otlp_begun", endpoint=self.endpoint, interval_ms=every_ms)
        for each in self._why.warnings:
            self.tell("otlp_warned", why=each)

    def _exporter(self) -> Any:
        self.endpoint = shown(os.environ)
        self._why.secrets = secrets(os.environ)
        logger = logging.getLogger("opentelemetry")
        logger.propagate, logger.handlers = False, [self._why]  # else it prints, at each attempt
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.resources import OTELResourceDetector

        from kraftfast.live.otlp_session import OtlpSession

        OTELResourceDetector().detect()  # for its warnings, which each push has again
        own = any(os.environ.get(name) for name in CREDENTIAL_PROVIDERS)
        return OTLPMetricExporter(session=None if own else OtlpSession())

    def _run(self, exporter: Any, every_s: float) -> None:
        while not self._closing.wait(every_s):
            self.push(exporter)
        if not self.fails:
            self.push(exporter)  # what came since the last one

    def push(self, exporter: Any) -> None:
        """Push once; tell if that fails, or goes well again."""
        from kraftfast.live.otlp_data import metrics_data

        try:
            found = metrics_data(self.look(), self.cluster_id)
            self._why.said = []
            well = exporter.export(found).name == "SUCCESS"
        except Exception as error:  # noqa: BLE001 - of the library; the next push may go well
            well, self._why.said = False, [self._why.plain(f"{type(error).__name__}: {error}")]
        if well and self.fails:
            self.tell("otlp_restored", endpoint=self.endpoint)
        elif not well and not self.fails:
            why = " ".join(self._why.said) or "it refused"
            self.tell("otlp_failed", endpoint=self.endpoint, why=why)
        self.fails = not well

    def close(self) -> None:
        """Push once more, if the collector took what came last, and no more then."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(LAST_PUSH_S)


class _Words(logging.Handler):
    """Keeps messages of the library, without ``secrets``, which they may quote."""

    # said: the first one and the last one of a push: one says why, the other that it is given up.
    # warnings: the first ones of all, of what the library ignores.

    def __init__(self) -> None:
        super().__init__()
        self.said, self.warnings, self.secrets = list[str](), list[str](), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        text = self.plain(record.getMessage())
        self.said = [*self.said[:1], text]
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(text)

    def plain(self, text: str) -> str:
        """Return ``text`` without what must not be told."""
        for each in self.secrets:
            text = text.replace(each, "...")
        return text
