"""Metrics pushed by OTLP: a receiver over HTTP finds in them what ``/metrics`` shows."""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from requests.adapters import BaseAdapter

from kraftfast.cli.serve import run as run_serve
from kraftfast.cli.start import run as run_start
from kraftfast.live import otlp
from kraftfast.live.families import families
from kraftfast.live.metrics_process import MetricsProcess
from kraftfast.live.otlp import Pusher, endpoint, interval_ms
from kraftfast.live.otlp_session import OtlpSession
from kraftfast.node.event_log import Entry, EventLog, line
from kraftfast.quorum import LocalQuorum
from tests.live.kit import SMALL, sample, wait_until

SAMPLES = [
    sample(1, role="leader", epoch=7, flushes=11, times_ns=(500, 2_000_000, 2**40)),
    sample(2, high_watermark=5),
]
UNITS = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "": ""}


class Receiver:
    """Takes metrics as a collector does. ``status``: what it answers; ``endless``: for ever."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.status, self.endless, self.sent = 200, False, 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                taken = ExportMetricsServiceRequest.FromString(body)
                receiver.requests.append((self.path, taken))
                receiver.authorizations.append(self.headers["Authorization"])
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                with suppress(ConnectionError):
                    while receiver.endless:
                        receiver.sent += self.wfile.write(bytes(64 * 1024))
                        receiver.endless = receiver.sent < 2**30
                self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

            def log_message(self, *_args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    yield made
    made.close()


def shown(taken: Any) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Values by Prometheus's name and the labels, as a collector translates them."""
    found = {}
    for metric in taken.resource_metrics[0].scope_metrics[0].metrics:
        name = metric.name.replace(".", "_") + UNITS[metric.unit]
        data = getattr(metric, metric.WhichOneof("data"))
        for point in data.data_points:
            labels = {each.key: each.value.string_value for each in point.attributes}
            if metric.HasField("histogram"):
                total = 0
                bounds = [*map(repr, point.explicit_bounds), "+Inf"]
                for bound, count in zip(bounds, point.bucket_counts, strict=True):
                    total += count
                    found[f"{name}_bucket", frozenset({*labels.items(), ("le", bound)})] = total
                found[f"{name}_sum", frozenset(labels.items())] = point.sum
                assert point.count == total and not point.HasField("min")
                name_of_count = f"{name}_count"
                found[name_of_count, frozenset(labels.items())] = total
            else:
                end = "_total" if metric.HasField("sum") else ""
                found[name + end, frozenset(labels.items())] = point.as_double or point.as_int
            if metric.HasField("sum") and "replica" in labels:
                assert point.start_time_unix_nano == 10**18 and metric.sum.is_monotonic
                assert metric.sum.aggregation_temporality == 2  # cumulative
    return found


def pusher(told: list[Entry]) -> Pusher:
    return Pusher(lambda: SAMPLES, "its-cluster", EventLog(-1, told.append).tell)


def started(told: list[Entry]) -> Pusher:
    """One that pushes only when a test says so, if the environment lets it begin."""
    made = pusher(told)
    made.start()
    return made


def test_all_that_metrics_shows_is_pushed(receiver: Receiver) -> None:
    told: list[Entry] = []
    made = pusher(told)
    made.push(made._exporter())
    ((path, taken),) = receiver.requests
    assert path == "/v1/metrics" and told == []
    expected = {
        (each.name, frozenset(each.labels.items())): each.value
        for family in families(SAMPLES, "its-cluster")
        for each in family.samples
    }
    assert shown(taken) == expected and len(expected) > 100
    attributes = {
        each.key: each.value.string_value for each in taken.resource_metrics[0].resource.attributes
    }
    assert attributes["service.name"] == "kraftfast"
    assert attributes["kraftfast.cluster_id"] == "its-cluster"


def test_the_environment_names_the_service(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=orders,zone=b")
    made = pusher([])
    made.push(made._exporter())
    resource = receiver.requests[0][1].resource_metrics[0].resource
    named = {each.key: each.value.string_value for each in resource.attributes}
    assert (named["service.name"], named["zone"]) == ("orders", "b")


@pytest.mark.parametrize("status", [400, 302])
def test_a_collector_that_refuses_is_told_of_once(
    receiver: Receiver, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """And once more when it takes metrics again; the library's own lines do not appear."""
    told: list[Entry] = []
    made = pusher(told)
    exporter = made._exporter()
    receiver.status = status
    for _ in range(3):
        made.push(exporter)
    receiver.status = 200
    for _ in range(2):
        made.push(exporter)
    assert [each.event for each in told] == ["otlp_failed", "otlp_restored"]
    assert receiver.url in told[0].message and str(status) in told[0].message
    assert capfd.readouterr().err == ""


def test_an_answer_without_an_end_is_not_read_to_its_end(receiver: Receiver) -> None:
    """It took the memory of the host."""
    receiver.endless = True
    told: list[Entry] = []
    made = pusher(told)
    made.push(made._exporter())
    receiver.close()
    assert 0 < receiver.sent < 2**26 and told == []


def test_one_that_is_away_is_told_of(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    told: list[Entry] = []
    made = pusher(told)
    made.push(made._exporter())
    assert [each.event for each in told] == ["otlp_failed"]
    assert "127.0.0.1:1" in told[0].message


def test_what_came_last_is_pushed_at_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector had no figures of a quorum that ran for less than an interval."""
    monkeypatch.setenv(otlp.INTERVAL, "86400000")
    made = started([])
    made.close()
    assert len(receiver.requests) == 1
    receiver.status = 400
    failing = started([])
    failing.fails = True
    failing.close()
    assert len(receiver.requests) == 1, "a collector that is away holds nothing up"


def test_the_cause_of_what_is_given_up_is_told(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that is away, or has no time for it, was told of by the last words alone."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    receiver.status = 429
    told: list[Entry] = []
    made = pusher(told)
    made.push(made._exporter())
    assert "Too Many Requests" in told[0].message and "due to timeout" in told[0].message
    assert len(receiver.requests) == 2 and len(told) == 1


def test_the_certificate_for_a_collector_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, of the environment, took its place."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/others.pem")
    seen = []

    class Adapter(BaseAdapter):
        def send(self, *_args: Any, verify: bool | str = True, **_given: Any) -> NoReturn:
            seen.append(verify)
            raise ConnectionError

        def close(self) -> None:
            pass

    for own in ("/own.pem", True):
        session = OtlpSession()
        session.mount("http://", Adapter())
        session.verify = own
        with pytest.raises(ConnectionError):
            session.request("POST", "http://a")
    assert seen == ["/own.pem", "/others.pem"]


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "http://a"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "otlp"}, "http://a"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": ""}, "http://a"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a",
                "OTEL_METRICS_EXPORTER": "prometheus, otlp",
            },
            "http://a",
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "console,x"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "True"}, ""),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://b",
            },
            "http://b",
        ),
    ],
)
def test_where_it_is_pushed_to(environment: dict[str, str], found: str) -> None:
    assert endpoint(environment) == found


ASKED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}
OFF = ["otlp_off: metrics are not pushed by OTLP: it needs --metrics-listen"]


@pytest.mark.parametrize("command", ["start", "serve"])
@pytest.mark.parametrize(
    ("environment", "expected"),
    [(ASKED, OFF), (ASKED | {"OTEL_SDK_DISABLED": "true"}, []), ({}, [])],
)
def test_without_metrics_nothing_is_pushed_and_that_is_told(
    command: str,
    environment: dict[str, str],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said nothing: whoever had set the variables waited for metrics."""
    for name in otlp.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    told: list[Entry] = []
    log = EventLog(-1, told.append)

    class Reached(Exception):
        """The replicas would start here."""

    def reach(*_args: Any, **_settings: Any) -> None:
        raise Reached

    monkeypatch.setattr("kraftfast.LocalQuorum", reach)
    monkeypatch.setattr("kraftfast.cli.serve._run", reach)
    with pytest.raises(Reached):
        if command == "serve":
            run_serve(SimpleNamespace(directory=str(tmp_path)), log, "text")
        else:
            run_start({"directory": str(tmp_path), "voters": 1, "metrics": None}, log.tell, "text")
    assert [f"{each.event}: {each.message}" for each in told] == expected


@pytest.mark.parametrize("text", ["0", "99", "x", "\u00b2", "-5", "9" * 20, "1.5"])
def test_an_interval_that_is_none_is_refused(text: str) -> None:
    assert interval_ms({}) == 60_000 and interval_ms({otlp.INTERVAL: "250"}) == 250
    with pytest.raises(ValueError, match="100 to 86400000 is expected"):
        interval_ms({otlp.INTERVAL: text})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "the protocol grpc is not spoken"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "is expected"),
    ],
)
def test_what_cannot_be_is_one_line(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    monkeypatch.setenv(name, value)
    told: list[Entry] = []
    pusher(told).start()
    assert [each.event for each in told] == ["otlp_off"] and why in told[0].message


def test_without_the_library_it_says_what_to_install(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    told: list[Entry] = []
    pusher(told).start()
    assert "pip install 'kraftfast[otlp]'" in told[0].message


SECRET = "s3cret"


def told_of(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> str:
    """All that is told with these variables: of a start, and of the push at the end."""
    for name, value in ({otlp.INTERVAL: "86400000"} | variables).items():
        monkeypatch.setenv(name, value)
    told: list[Entry] = []
    started(told).close()
    return "\n".join(map(line, told))


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", otlp.ENDPOINTS[0]])
@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@127.0.0.1:1",
        "http://s3cret@127.0.0.1:1/",
        "http://user:s3cret/x@127.0.0.1:1",
        "http://user:s3cret#x@127.0.0.1:1",
        "http://user:x?s3cret@127.0.0.1:1",
        "http://user:12/s3cret@127.0.0.1:1",
        "http://user:s3cret@:x",
        "http://user:s3cret@",
        "http://[user:s3cret@127.0.0.1:1",
        "ftp://user:s3cret@h",
        "user:s3cret@127.0.0.1:1",
    ],
)
def test_no_password_is_told(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    """Where metrics are pushed to was told with what logs in there."""
    text = told_of(monkeypatch, {name: url, "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1"})
    assert SECRET not in text and ("127.0.0.1:1" in text or name in text)


def test_no_password_is_told_where_an_error_quotes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:{SECRET}@h")
    told: list[Entry] = []
    made = pusher(told)
    made._exporter()

    def export(_found: Any) -> None:
        raise ValueError(f"no http://user:{SECRET}@h/v1/metrics")

    made.push(SimpleNamespace(export=export))
    assert [each.message for each in told] == [
        "http://h does not take metrics: ValueError: no http://...h/v1/metrics -> it is tried again"
    ]


def test_a_password_is_used_all_the_same(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = receiver.url.replace("//", f"//user:{SECRET}@")
    text = told_of(monkeypatch, {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    assert f"pushed to {receiver.url} every" in text and "otlp_failed" not in text
    expected = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert receiver.authorizations == [expected]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "abc", "Invalid timeout value 'abc'"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "Unsupported compression type: brotli"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret", "Header format invalid!"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=s3cret;b", "Header format invalid!"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b;s3cret==", "Header format invalid!"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,Basic s3cret==", "Header format invalid!"),
        ("OTEL_RESOURCE_ATTRIBUTES", "zone", "Invalid key value resource attribute pair zone"),
    ],
)
def test_what_the_library_ignores_is_told_once(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    """It warned of them by ``logging``, where nobody looks; of a header it quotes the value."""
    text = told_of(monkeypatch, {name: value})
    (warned,) = [each for each in text.splitlines() if "WARNING" in each]
    assert f"otlp_warned: OpenTelemetry's exporter: {why}" in warned
    assert SECRET not in text and "otlp_begun" in text and len(receiver.requests) == 1


def test_no_header_is_told(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of requests quotes the value of a header that cannot be sent."""
    value = f"authorization=Bearer%20{SECRET}%0Ax,b=c"
    text = told_of(monkeypatch, {"OTEL_EXPORTER_OTLP_HEADERS": value})
    assert "otlp_failed" in text and SECRET not in text and "header value" in text


@pytest.mark.processes
def test_the_process_of_metrics_pushes(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with LocalQuorum(tmp_path / "q", voters=1, **SMALL) as quorum:
        tell = EventLog(-1, lambda _told: None).tell
        with MetricsProcess(quorum.path, ("127.0.0.1", 0), tell) as metrics:
            metrics.start()
            name = "kraftfast_role", frozenset({("replica", "1"), ("role", "leader")})
            wait_until(lambda: receiver.requests and shown_role(receiver, name) == 1)


def shown_role(receiver: Receiver, name: Any) -> float:
    """The value in what came last; start times are those of real processes here."""
    for metric in receiver.requests[-1][1].resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.gauge.data_points if metric.name == "kraftfast.role" else ():
            labels = frozenset((each.key, each.value.string_value) for each in point.attributes)
            if labels == name[1]:
                return float(point.as_double)
    return 0.0
