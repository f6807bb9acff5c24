"""Where the time of commits went: percentiles by stage, replica and time, of measured samples."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from kraftfast.errors import InputError, InvalidOption, StorageError
from kraftfast.spark.sessions.spark_failures import told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 32
"""To a doubling: a percentile is at most 2.2 % above the value it stands for."""
FIELDS = ("at_us", "stage", "replica", "us", "count")
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
ORDER = ("whole", "queue", "append", "travel", "follower_flush", "leader_flush", "commit")
WIDTH, HEIGHT, LEFT, ROW = 760, 120, 60, 150
COLOURS = ("#1f77b4", "#2ca02c", "#ff7f0e", "#d62728")


def latency(samples: DataFrame, *, slices: int = 1) -> DataFrame:
    """Return count, percentiles and maximum of each stage on each replica, in ``slices`` of the
    time.

    ``samples``: as ``kraftfast bench ... --samples FILE`` writes them. Samples are counted in
    logarithmic buckets first, so that nothing is sorted and many files may be read together.
    Raises InvalidOption.
    """
    missing = [name for name in FIELDS if name not in samples.columns]
    if missing:
        raise InvalidOption(f"these are no samples of a benchmark: {missing[0]} is missing")
    if slices < 1:
        raise InvalidOption(f"slices={slices}: it is at least 1")
    ends = samples.selectExpr("min(at_us) as least", "max(at_us) + 1 as ends")
    sliced = samples.crossJoin(ends).selectExpr(
        "stage", "replica", "us", "count",
        f"int((at_us - least) * {slices} div (ends - least)) as slice",
        f"ceil(log2(greatest(us, 0.001)) * {BUCKETS}) as bucket",
    )  # fmt: skip
    counted = sliced.groupBy("stage", "replica", "slice", "bucket").agg(
        *_exprs("sum(count) as count", "max(us) as most")
    )
    quantiles = [
        f"least(percentile(pow(2, bucket / {BUCKETS}), {share}, count), max(most)) as {name}"
        for name, share in QUANTILES.items()
    ]
    return (
        counted.groupBy("stage", "replica", "slice")
        .agg(*_exprs("sum(count) as count", *quantiles, "max(most) as max_us"))
        .orderBy("stage", "replica", "slice")
    )


def _exprs(*texts: str) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]


def table(percentiles: DataFrame) -> list[dict[str, Any]]:
    """Return the rows, in the order in which a record passes the stages."""
    with told():
        rows = [row.asDict() for row in percentiles.collect()]
    return sorted(rows, key=lambda row: (_rank(row["stage"]), row["replica"], row["slice"]))


def _rank(stage: str) -> int:
    return ORDER.index(stage) if stage in ORDER else len(ORDER)


def picture(rows: list[dict[str, Any]], path: str) -> None:
    """Draw percentiles over the slices of time as an SVG file, a row of it a stage and replica.

    Raises InputError where there is nothing to draw, StorageError.
    """
    if not rows:
        raise InputError("there are no samples to draw")
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["stage"], row["replica"]), []).append(row)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 20}" '
        f'height="{ROW * len(groups) + 30}" font-family="sans-serif" font-size="11">'
        '<rect width="100%" height="100%" fill="white"/>'
    ]
    for number, (name, colour) in enumerate(zip(QUANTILES, COLOURS)):
        parts.append(f'<text x="{LEFT + 70 * number}" y="16" fill="{colour}">{name[:-3]}</text>')
    for number, ((stage, replica), group) in enumerate(groups.items()):
        parts += _panel(f"{stage}, replica {replica}", group, 30 + ROW * number)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*parts, "</svg>\n"]))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None


def _panel(title: str, group: list[dict[str, Any]], top: int) -> list[str]:
    """Return lines of percentiles; heights are microseconds from 0 to the largest p99.9."""
    most = max(max(row["p999_us"] for row in group), 0.001)
    floor = top + HEIGHT
    parts = [
        f'<text x="{LEFT}" y="{top + 12}" fill="#333">{html.escape(title)}</text>',
        f'<line x1="{LEFT}" y1="{floor}" x2="{LEFT + WIDTH}" y2="{floor}" stroke="#999"/>',
        f'<text x="2" y="{top + 24}" fill="#666">{most:,.0f} us</text>',
        f'<text x="2" y="{floor}" fill="#666">0</text>',
    ]
    width = WIDTH / len(group)
    for name, colour in zip(QUANTILES, COLOURS):
        points = []
        for row in group:
            y = floor - (HEIGHT - 20) * row[name] / most
            x = LEFT + width * row["slice"] if len(group) > 1 else LEFT
            points.append(f"{x:.1f},{y:.1f} {x + width:.1f},{y:.1f}")
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(points)}"/>')
    return parts
