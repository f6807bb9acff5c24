"""What ``/metrics`` shows, as OpenTelemetry has it.

Names are OpenTelemetry's, of which a collector makes those of ``/metrics`` again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kraftfast import __version__
from kraftfast.live.families import REPLICA, families
from kraftfast.live.pages import NS_PER_S, Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1"}
PREFIX = "kraftfast_"


def metrics_data(samples: list[Sample], cluster_id: str) -> MetricsData:
    """Return all families of ``/metrics`` as OpenTelemetry has them."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    own = {"service.name": "kraftfast", "service.version": __version__}
    resource = Resource(own | {"kraftfast.cluster_id": cluster_id})
    resource = resource.merge(OTELResourceDetector().detect())
    now_ns = time.time_ns()
    began = {
        str(it.id): int(it.process.started_s * NS_PER_S) for it in samples if it.process is not None
    }
    metrics = [_metric(family, began, now_ns) for family in families(samples, cluster_id)]
    scope = InstrumentationScope("kraftfast", __version__)
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: Any, began: dict[str, int], now_ns: int) -> Metric:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        NumberDataPoint,
        Sum,
    )

    data: Any
    if family.type == "histogram":
        data = Histogram(_distributions(family, began, now_ns), AggregationTemporality.CUMULATIVE)
    else:
        points = [
            NumberDataPoint(
                each.labels, began.get(each.labels.get(REPLICA, ""), 0), now_ns, float(each.value)
            )
            for each in family.samples
        ]
        data = Gauge(points)
        if family.type == "counter":
            data = Sum(points, AggregationTemporality.CUMULATIVE, True)
    name, unit = family.name.removeprefix(PREFIX), ""
    for suffix, its_unit in UNITS.items():
        if name.endswith(suffix):
            name, unit = name.removesuffix(suffix), its_unit
    return Metric(f"kraftfast.{name}", family.documentation, unit, data)


def _distributions(family: Any, began: dict[str, int], now_ns: int) -> list[Any]:
    """Return the points of a histogram, whose samples count up to each bound, in order."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    found: dict[tuple[str, ...], tuple[dict[str, str], dict[str, int], list[float]]] = {}
    for each in family.samples:
        labels = {name: value for name, value in each.labels.items() if name != "le"}
        _, below, total = found.setdefault(tuple(labels.values()), (labels, {}, []))
        if "le" in each.labels:
            below[each.labels["le"]] = int(each.value)
        elif each.name.endswith("_sum"):
            total.append(each.value)
    points = []
    for labels, below, (total_s,) in found.values():
        up_to = list(below.values())
        counts = [up_to[0], *(after - before for before, after in zip(up_to, up_to[1:]))]
        unknown: Any = None  # the least and the greatest, which are not kept
        points.append(
            HistogramDataPoint(
                labels, began.get(labels[REPLICA], 0), now_ns, up_to[-1], total_s, counts,
                [float(bound) for bound in below if bound != "+Inf"], unknown, unknown,
            )
        )  # fmt: skip
    return points
