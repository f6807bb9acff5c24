"""The dashboard and the alert rules: what they name is exported, and Prometheus itself takes it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kraftfast.link.stats import ROLES, STAGES, TROUBLES
from kraftfast.live.families import registry
from kraftfast.live.metrics_process import MetricsProcess
from kraftfast.live.pages import Pages
from kraftfast.quorum import LocalQuorum
from tests.cli.kit import ROOT
from tests.live.kit import SMALL, TIMEOUT_S, wait_until

RULES = ROOT / "docs/operations/alerts.yml"
DASHBOARD = ROOT / "docs/operations/grafana.json"
NAME = re.compile(r"\bkraftfast_[a-z_]+\b")
KNOWN = {"role": ROLES, "stage": STAGES, "trouble": TROUBLES}
NOT_HERE = "{} is not installed (Debian's package prometheus has it)"


def expressions() -> list[str]:
    """Every question of the dashboard to Prometheus."""
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [each["expr"] for panel in dashboard["panels"] for each in panel.get("targets", ())]
    return [*panels, *(each["expr"] for each in dashboard["annotations"]["list"])]


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    with LocalQuorum(tmp_path_factory.mktemp("quorum"), voters=3, **SMALL) as quorum:
        yield quorum


@pytest.fixture(scope="module")
def exported(quorum: LocalQuorum) -> set[str]:
    """The names of all series of a quorum that runs."""
    with Pages(quorum.path) as pages:
        wait_until(lambda: all(each.up for each in pages.samples()))
        text = generate_latest(registry(pages.samples, pages.cluster_id)).decode()
    return {each.name for family in text_string_to_metric_families(text) for each in family.samples}


@pytest.mark.processes
@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=lambda path: path.name)
def test_every_metric_that_is_named_is_exported(path: Path, exported: set[str]) -> None:
    named = set(NAME.findall(path.read_text()))
    assert len(named) > 8 and named - exported == set()


@pytest.mark.processes
def test_the_page_of_metrics_names_all_that_is_exported(exported: set[str]) -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}
    assert families == set(NAME.findall(page))


@pytest.mark.parametrize("label", KNOWN)
def test_every_value_of_a_label_is_known(label: str) -> None:
    text = RULES.read_text() + "\n".join(expressions())
    found = "|".join(re.findall(rf'\b{label}=~?"([^"$]*)"', text))
    named = set(found.split("|"))
    assert named and named <= set(KNOWN[label])


def test_panels_have_their_own_places() -> None:
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@pytest.mark.parametrize("args", [("check", "rules", RULES), ("test", "rules", "alerts_test.yml")])
def test_promtool_takes_the_rules(args: tuple[object, ...]) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip(NOT_HERE.format("promtool"))
    done = subprocess.run(
        [tool, *map(str, args)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


class Prometheus:
    """A Prometheus that scrapes these addresses every second, with the rules."""

    def __init__(self, tool: str, place: Path, targets: list[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.at = f"127.0.0.1:{sock.getsockname()[1]}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "kraftfast", "static_configs": [{"targets": targets}]},
            ],
        }
        (place / "prometheus.yml").write_text(json.dumps(config))  # which is YAML too
        self.process = subprocess.Popen(
            [tool, "--config.file=prometheus.yml", f"--web.listen-address={self.at}"],
            cwd=place,
            stdout=subprocess.DEVNULL,
            stderr=(place / "log").open("wb"),
        )

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; None while it does not serve yet."""
        url = f"http://{self.at}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except ConnectionError:
            pass
        except urllib.error.HTTPError as error:
            assert error.code == 503, (query, error.read())  # it is not ready yet
        except urllib.error.URLError as error:
            assert isinstance(error.reason, ConnectionError), query
        return None

    def value(self, question: str) -> list[Any]:
        answer = self.ask("query", query=question)
        return [] if answer is None else answer["result"]


@pytest.mark.processes
def test_prometheus_scrapes_three_replicas(quorum: LocalQuorum, tmp_path: Path) -> None:
    tool = shutil.which("prometheus")
    if tool is None:
        pytest.skip(NOT_HERE.format("prometheus"))
    with ExitStack() as undo:
        targets = []
        for place in quorum.directories.values():  # as three servers do it
            metrics = undo.enter_context(
                MetricsProcess(place, ("127.0.0.1", 0), lambda *_, **__: None)
            )
            metrics.start()
            targets.append(metrics.address)
        producer = undo.enter_context(quorum.producer())
        prometheus = Prometheus(tool, tmp_path, targets)
        undo.callback(prometheus.process.wait)
        undo.callback(prometheus.process.kill)

        def ups() -> bool:
            producer.append_wait(b"x" * 100, timeout=20)
            return len(prometheus.value("kraftfast_up == 1")) == 3

        wait_until(ups)
        for each in prometheus.ask("targets")["activeTargets"]:
            assert each["health"] == "up" and not each["lastError"], each
        wait_until(lambda: ups() and prometheus.value("rate(kraftfast_flushes_total[1m]) > 0"))
        for question in expressions():
            asked = question.replace("$__rate_interval", "1m").replace("$job", "kraftfast")
            if re.search(r"trouble|loop_age|changes", question):
                assert prometheus.value(asked) == []  # all is well
            else:
                wait_until(lambda: ups() and prometheus.value(asked))
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert {each["health"] for each in rules} <= {"ok", "unknown"}, rules
        assert not [each["name"] for each in rules if each["state"] == "firing"]
