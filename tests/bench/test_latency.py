"""What a benchmark reports of latencies: every leader's samples, and no percentile of a few."""

from __future__ import annotations

from kraftfast.bench.loads.load import Latency, percentiles
from kraftfast.client.producer.producer import Producer
from tests.client.scripted_quorum import ScriptedQuorum

TIMEOUT_S = 30


def test_samples_of_earlier_leaders_are_kept() -> None:
    quorum = ScriptedQuorum()
    try:
        with Producer(quorum, TIMEOUT_S) as producer:
            for _ in range(3):
                for _ in range(40):
                    producer.append_wait(b"value", timeout=TIMEOUT_S)
                quorum.lose()
            producer.append_wait(b"value", timeout=TIMEOUT_S)
            measured = Latency.of(producer)
            assert measured.samples == 121
            assert producer.sender.commit_latency()["count"] == 121
            assert 0 < measured.p50_us <= measured.p99_us <= measured.max_us * 1.02
            assert measured.p999_us is None

            quorum.lose()
            producer.latencies.reset_latency()
            producer.append_wait(b"value", timeout=TIMEOUT_S)
            measured = Latency.of(producer)
            assert (measured.samples, measured.p50_us, measured.p99_us) == (1, None, None)
            assert measured.max_us > 0
    finally:
        quorum.stop()


def test_a_percentile_of_three_samples_is_none() -> None:
    histogram = {"p50_us": 1.0, "p99_us": 2.0, "p999_us": 3.0, "max_us": 3.0}
    for count, told in (
        (0, [None, None, None]),
        (1, [None, None, None]),
        (3, [1.0, None, None]),
        (100, [1.0, 2.0, None]),
        (1000, [1.0, 2.0, 3.0]),
    ):
        assert list(percentiles({"count": count, **histogram}).values()) == told
