"""The pages over HTTP: what is answered, and what clients that are slow or many come to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client")

from kraftfast.live import http
from kraftfast.live.pages import Sample
from kraftfast.node.event_log import Entry, EventLog
from tests.live.kit import TIMEOUT_S, get, request, sample, wait_until

SAMPLES = [sample(1, role="leader"), sample(2), Sample(3, 0, False, "gone")]


class Served(http.Server):
    """What runs beside a test. ``shown``: the samples it shows; an exception is raised."""

    shown: list[Sample]


@pytest.fixture
def told() -> list[Entry]:
    return []


@pytest.fixture
def server(told: list[Entry]) -> Iterator[Served]:
    sock = socket.create_server(("127.0.0.1", 0))
    made = Served(sock, lambda: made.shown, "its-cluster", EventLog(1, told.append).tell)
    made.shown = SAMPLES
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(TIMEOUT_S)


def at(server: http.Server) -> tuple[str, int]:
    host, port = server.socket.getsockname()
    return host, port


def test_the_paths(server: Served) -> None:
    status, body = get(at(server), "/metrics")
    assert status == 200 and 'kraftfast_up{replica="3"} 0.0' in body
    assert get(at(server), "/healthz") == (200, "running: 1, 2\n")
    lines = "replica 1: ready\nreplica 2: ready\nreplica 3: it does not run: gone\n"
    assert get(at(server), "/readyz") == (200, lines)
    assert get(at(server), "/other") == (404, http.PATHS)


def test_what_is_not_well(server: Served) -> None:
    server.shown = SAMPLES[1:]
    assert get(at(server), "/readyz")[0] == 503
    assert get(at(server), "/readyz?replica=2") == (200, "replica 2: ready\n")
    assert get(at(server), "/readyz?replica=3")[0] == 503
    server.shown = SAMPLES[2:]
    assert get(at(server), "/healthz") == (503, "no replica runs\n")


def test_how_far_behind_is_asked(server: Served) -> None:
    server.shown = [sample(2, leader_high_watermark=105)]
    assert get(at(server), "/readyz?behind=100")[0] == 200
    assert get(at(server), "/readyz?behind=99")[0] == 503


@pytest.mark.parametrize(
    "query, status",
    [
        ("replica=9", 404), ("replica=x", 400), ("replica=-1", 400), ("replica=\u00b2", 400),
        ("behind=" + "9" * 50, 400), ("other=1", 400), ("replica=1&replica=2", 400),
        ("replica=", 400), ("behind", 400), ("foo=", 400),
    ],
)  # fmt: skip
def test_bad_questions_are_refused_in_one_line(server: Served, query: str, status: int) -> None:
    found, body = get(at(server), f"/readyz?{query}")
    assert found == status and body.count("\n") == 1


def test_a_head_has_no_body(server: Served) -> None:
    assert get(at(server), "/healthz", "HEAD") == (200, "")


def test_openmetrics_is_served_to_who_asks(server: Served) -> None:
    accept = "Accept: application/openmetrics-text; version=1.0.0\r\n"
    assert get(at(server), "/metrics", more=accept)[1].endswith("# EOF\n")


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=x", "text/plain; version=.", ";", "\u00e9"]
)
def test_a_strange_accept_gets_plain_text(server: Served, accept: str) -> None:
    status, body = get(at(server), "/metrics", more=f"Accept: {accept}\r\n")
    assert status == 200 and "kraftfast_up" in body


@pytest.mark.parametrize(
    "text, status",
    [
        ("POST /metrics HTTP/1.1\r\n\r\n", "501"),
        ("nonsense\r\n\r\n", "400"),
        ("GET http://[/ HTTP/1.0\r\n\r\n", "400"),
        ("GET /" + "a" * 70_000 + " HTTP/1.1\r\n\r\n", "414"),
        ("GET / HTTP/1.1\r\n" + "a: b\r\n" * 200 + "\r\n", "431"),
    ],
)
def test_what_is_no_request_for_a_page(server: Served, text: str, status: str) -> None:
    head, body = request(at(server), text)
    assert status in (head + body).split() and "<" not in body
    assert get(at(server), "/healthz")[0] == 200


def test_a_client_that_sends_nothing_is_closed(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTION_S_MAX", 0.1)
    with socket.create_connection(at(server), TIMEOUT_S) as sock:
        assert sock.recv(1) == b""


def test_a_client_that_sends_a_byte_now_and_then_is_closed_too(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTION_S_MAX", 0.3)
    with socket.create_connection(at(server), TIMEOUT_S) as sock:
        sock.settimeout(0.02)
        sent = 0

        def is_closed() -> bool:
            nonlocal sent
            try:
                sock.send(b"a")
                sent += 1
                return sock.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(is_closed)
        assert sent > 3


def test_one_client_too_many_is_closed_and_the_next_is_served(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    held = [socket.create_connection(at(server), TIMEOUT_S) for _ in range(2)]
    wait_until(lambda: len(server._until) == 2)
    assert request(at(server), "GET /healthz HTTP/1.1\r\n\r\n") == ("", "")
    held.pop().close()
    wait_until(lambda: len(server._until) == 1)
    assert get(at(server), "/healthz")[0] == 200
    held.pop().close()


def test_what_goes_wrong_here_is_told(server: Served, told: list[Entry]) -> None:
    del server.shown
    assert request(at(server), "GET /healthz HTTP/1.1\r\n\r\n") == ("", "")
    wait_until(lambda: not server._until)
    assert [each.event for each in told] == ["request_failed"]
    assert "AttributeError" in told[0].message


def test_connections_are_forgotten(server: Served) -> None:
    for _ in range(3):
        get(at(server), "/healthz")
    wait_until(lambda: not server._until)
