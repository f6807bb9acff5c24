"""All replicas of a log held against each other: the same records, whole, in the same order.

Headers first, with every CRC computed again: a stored CRC is the same on all replicas though a byte
of one has changed, and the epoch stands outside the CRC. Records are compared only where headers
differ. What one replica has not got yet is no divergence, nor is a tail of another epoch that
never was committed; both are reported.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kraftfast.errors import CorruptLog, InvalidOption
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.record.checksum import crc32c
from kraftfast.spark.jobs.audit_findings import Audited, Finding, Report
from kraftfast.spark.jobs.digests import Digest, alike, digests
from kraftfast.spark.jobs.shared import shared_offsets, void_tails
from kraftfast.spark.reading.committed import running_end
from kraftfast.spark.reading.locations import Place, find_places
from kraftfast.spark.reading.splits import OPEN_END, Bounds, Damaged, Piece, header_pieces, pieces
from kraftfast.spark.sessions.local_session import register
from kraftfast.spark.sessions.spark_failures import told
from kraftfast.spark.spark_options import SPLIT_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS_MAX = 1000
RECORDS_MAX = 20_000
"""So many records that differ are looked at in one range of offsets."""
RANGES_MAX = 8
IDENTITY = "struct(lastOffset, count, epoch, crc, attributes, producerId, producerEpoch)"


Replay = Callable[["DataFrame"], "DataFrame"]
"""From the log up to a snapshot's end to what the snapshot should hold: a column ``value``."""


def audit(
    spark: SparkSession, replicas: str | Sequence[str], *, replay: Replay | None = None
) -> Report:
    """Compare the logs of replicas: directories, a quorum's directory, globs of them.

    Below the lowest high watermark of those that run; of a log that has a tail that never was
    committed, below it. ``replay``: hold the newest snapshot against
    the log it replaces too, where that is still there from offset 0.
    Raises InputError, NotFormatted, StorageError, InvalidOption for less than one replica.
    """
    paths = [replicas] if isinstance(replicas, str) else list(replicas)
    places = list(dict.fromkeys(place for path in paths for place in find_places(path)))
    if not places:
        raise InvalidOption("an audit wants the directory of at least one replica")
    register(spark)
    committed = [end for end in (running_end(place) for place in places) if end is not None]
    bound = min(committed, default=None)
    tails = void_tails(places)
    bounds = {
        place.name: min(bound or OPEN_END, tails[place.name].first_offset)
        if place.name in tails
        else bound
        for place in places
    }
    shared = shared_offsets(places, bounds)
    with told():
        parts = [
            part
            for place in places
            for part in header_pieces(place, SPLIT_BYTES, bounds[place.name])
        ]
        found = digests(spark, parts, shared)
        report = _report(places, found, bound)
        same = alike(found, [place.name for place in places])
        faults = [] if same else _faults(spark, places, report)
        faults += _among_some(spark, places, parts, report)
        faults += _lost_heads(places, report) + _lost_tails(places) + _lags(report.replicas)
        faults += [*tails.values(), *_snapshots(spark, places, replay)]
    report.findings = sorted(
        _once(faults), key=lambda each: (each.note, each.first_offset, each.kind == "gap")
    )[:FINDINGS_MAX]
    return report


def _headers(spark: SparkSession, places: list[Place]) -> DataFrame:
    found = None
    for place in places:
        one = spark.read.format("kraftfast-batches").load(place.name)
        found = one if found is None else found.unionByName(one)
    assert found is not None
    return found


def _report(places: list[Place], found: list[Digest], bound: int | None) -> Report:
    """Return what there is, and what all replicas have of it."""
    replicas = []
    for place in places:
        mine = [each for each in found if each.replica == place.name and each.batches]
        start = min((each.base_offset for each in mine), default=0)
        end = max((each.end_offset for each in mine), default=0)
        sums = (sum(each.batches for each in mine), sum(each.records for each in mine))
        replicas.append(Audited(place.name, start, end, *sums, sum(each.bytes for each in mine)))
    first = max(each.start_offset for each in replicas)
    ends = [each.end_offset for each in replicas] + ([] if bound is None else [bound])
    return Report(replicas, first, max(first, min(ends)))


def _faults(spark: SparkSession, places: list[Place], report: Report) -> list[Finding]:
    """Return, batch by batch, what is wrong with each replica, and where they differ."""
    headers = _headers(spark, places)
    headers.cache()
    try:
        shared = range(report.start_offset, report.end_offset)
        return _own_faults(headers) + _divergences(spark, headers, places, shared)
    finally:
        headers.unpersist()


def _among_some(
    spark: SparkSession, places: list[Place], parts: list[Piece], report: Report
) -> list[Finding]:
    """Compare what some replicas have and others lack, among those that have it.

    Else one replica that is empty, or far behind, would keep the others from being compared.
    """
    found = []
    for shared, having in ranges_of_some(
        {each.replica: range(each.start_offset, each.end_offset) for each in report.replicas}
    ):
        mine = [each for each in parts if each.replica in having and _meets(each, shared)]
        if not alike(digests(spark, mine, shared), having):
            few = [place for place in places if place.name in having]
            found += _divergences(spark, _headers(spark, few), few, shared)
    return found


def _meets(piece: Piece, shared: range) -> bool:
    return piece.first_offset < shared.stop and piece.end_offset > shared.start


def ranges_of_some(held: dict[str, range]) -> list[tuple[range, list[str]]]:
    """Return ranges of offsets that at least two replicas have, but not all of them, and which.

    >>> ranges_of_some({"a": range(0, 9), "b": range(2, 9), "c": range(2, 5)})
    [(range(5, 9), ['a', 'b'])]
    >>> ranges_of_some({"a": range(0, 9), "b": range(0, 9), "c": range(0, 0)})
    [(range(0, 9), ['a', 'b'])]
    """
    ends = sorted({end for each in held.values() if each for end in (each.start, each.stop)})
    found = []
    for first, end in zip(ends, ends[1:]):
        having = [name for name, each in held.items() if each.start <= first and end <= each.stop]
        if 2 <= len(having) < len(held):
            found.append((range(first, end), having))
    return found


def _sql(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


def _once(found: list[Finding]) -> list[Finding]:
    """Report a damaged place once, by the first that found it."""
    seen: dict[tuple[str, str, int], Finding] = {}
    for each in found:
        place = (each.replica, each.segment, each.position)
        if each.position < 0 or place not in seen:
            seen.setdefault(place if each.position >= 0 else (each.text, "", -1), each)
    return list(seen.values())


# --- what a replica is by itself ------------------------------------------------------------------


def _own_faults(headers: DataFrame) -> list[Finding]:
    """Return CRCs that do not hold, what is no batch, gaps, epochs that fall."""
    found = []
    damaged = headers.where("not crcOk").orderBy("baseOffset").limit(FINDINGS_MAX)
    for row in damaged.collect():
        text = (
            f"the batch of offsets {row.baseOffset} to {row.lastOffset} at byte {row.position} of "
            f"{row.segment} in {row.replica} is damaged: its CRC does not match"
        )
        place = (row.replica, row.segment, row.position)
        found.append(Finding("crc", *place, row.baseOffset, row.lastOffset + 1, text))
    order = "over (partition by replica order by baseOffset, segment, position)"
    followed = headers.where("baseOffset is not null").selectExpr(
        "*", f"lag(lastOffset) {order} + 1 as expected", f"lag(epoch) {order} as earlier",
        f"lead(baseOffset) {order} as following",
    )  # fmt: skip
    wrong = followed.where("baseOffset <> expected or epoch < earlier")
    for row in wrong.orderBy("baseOffset").limit(FINDINGS_MAX).collect():
        place = (row.replica, row.segment, row.position)
        if row.baseOffset != row.expected:
            text = (
                f"{row.replica} continues with offset {row.baseOffset} instead of "
                f"{row.expected}, at byte {row.position} of {row.segment}"
            )
            ends = max(row.expected, row.baseOffset)
            found.append(Finding("gap", *place, min(row.expected, row.baseOffset), ends, text))
        else:
            text = (
                f"the epoch falls from {row.earlier} to {row.epoch} at offset {row.baseOffset}, "
                f"byte {row.position} of {row.segment} in {row.replica}"
            )
            found.append(Finding("epoch", *place, row.baseOffset, row.lastOffset + 1, text))
    return found + _foreign_bytes(followed)


def _foreign_bytes(followed: DataFrame) -> list[Finding]:
    """Return what is no batch, where none is missing: behind a segment that another one follows."""
    found = []
    rows = followed.where("trailing > 0 and following = lastOffset + 1")
    for row in rows.orderBy("baseOffset").limit(FINDINGS_MAX).collect():
        position, offset = row.position + row.size, row.lastOffset + 1
        text = (
            f"{row.trailing} bytes at byte {position} of {row.segment} in {row.replica} are no "
            f"batch; no offset is missing there ({row.damage})"
        )
        place = (row.replica, row.segment, position)
        found.append(Finding("framing", *place, offset, offset, text))
    return found


def _lost_heads(places: list[Place], report: Report) -> list[Finding]:
    """Return replicas that begin later than another, without a snapshot of what is gone."""
    found = []
    least = min(each.start_offset for each in report.replicas)
    for place, each in zip(places, report.replicas):
        start = each.start_offset
        ids = snapshot_ids(Disk(), place.log_path)
        if start == least or any(one.offset >= start for one in ids):
            continue
        text = (
            f"{place.name} begins at offset {start:,}, another replica at {least:,}, and no "
            "snapshot covers the records before"
        )
        found.append(Finding("gap", place.name, "", -1, least, start, text))
    return found


def _lost_tails(places: list[Place]) -> list[Finding]:
    """Return what stands behind the last whole batch of a replica: damage, or a torn tail."""
    found = []
    for place in places:
        bases = place.bases()
        if not bases:
            continue
        last = Place(place.name, place.log_path, f"{bases[-1]:020d}.log")
        for each in pieces(last, Bounds(), 1 << 40, running_end(place)):
            if isinstance(each, Damaged):
                name = os.path.basename(each.path)
                text = f"{place.name}: {each.error()}"
                where = (place.name, name, each.position, each.first_offset, each.end_offset)
                found.append(Finding("framing", *where, text))
    return found


def _lags(replicas: list[Audited]) -> list[Finding]:
    ahead = max(each.end_offset for each in replicas)
    return [
        Finding(
            "lag", each.replica, "", -1, each.end_offset, ahead,
            f"{each.replica} ends at offset {each.end_offset:,}, {ahead - each.end_offset:,} "
            "behind the longest", True,
        )
        for each in replicas
        if each.end_offset < ahead
    ]  # fmt: skip


# --- replicas against each other ------------------------------------------------------------------


def _divergences(
    spark: SparkSession, headers: DataFrame, places: list[Place], shared: range
) -> list[Finding]:
    """Level 1: batches that are not the same everywhere. Level 2: their records."""
    if len(places) < 2 or not shared:
        return []
    inside = f"baseOffset >= {shared.start} and lastOffset < {shared.stop}"
    differing = (
        headers.where(inside)
        .groupBy("baseOffset")
        .agg(
            *map(_sql, (
                "max(lastOffset) + 1 as ends", "count(*) as copies", f"min({IDENTITY}) as least",
                f"max({IDENTITY}) as most", "bool_and(crcOk) as sound",
            ))
        )
        .where(f"copies <> {len(places)} or least <> most or not sound")
        .selectExpr("baseOffset", "ends")
        .orderBy("baseOffset")
    )  # fmt: skip
    bounds = differing.limit(FINDINGS_MAX).collect()
    if not bounds:
        return []
    ranges = merged([(row.baseOffset, row.ends) for row in bounds])
    if len(ranges) > RANGES_MAX:
        ranges = [*ranges[: RANGES_MAX - 1], (ranges[RANGES_MAX - 1][0], ranges[-1][1])]
    found = []
    for first, end in ranges:
        found += _records_apart(spark, places, first, end)
    return found or _headers_apart(headers, *ranges[0])


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, those that touch as one.

    >>> merged([(0, 4), (4, 8), (20, 24)])
    [(0, 8), (20, 24)]
    """
    found: list[tuple[int, int]] = []
    for first, end in ranges:
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


def _records_apart(spark: SparkSession, places: list[Place], first: int, end: int) -> list[Finding]:
    """Return runs of offsets at which the records of replicas differ, and whose are odd."""
    options: dict[str, Any] = {
        "startOffset": first, "endOffset": end, "onCorrupt": "skip", "controlRecords": "true",
        "failOnDataLoss": "false",
    }  # fmt: skip
    records = None
    for number, place in enumerate(places):
        one = (
            spark.read.format("kraftfast").options(**options).load(place.name)
            .selectExpr(
                "offset", f"{number} as place", "epoch",
                "xxhash64(timestamp, key, value, headers, control) as digest",
            )
        )  # fmt: skip
        records = one if records is None else records.unionAll(one)
    assert records is not None
    apart = (
        records.groupBy("offset")
        .agg(*map(_sql, (
            "collect_list(struct(place, epoch, digest)) as copies",
            "min(struct(epoch, digest)) as least", "max(struct(epoch, digest)) as most",
        )))
        .where(f"size(copies) <> {len(places)} or least <> most")
        .orderBy("offset")
        .limit(RECORDS_MAX)
    )  # fmt: skip
    runs: list[tuple[int, int, tuple[int, ...], str]] = []
    rows = apart.collect()
    for row in rows:
        odd, how = odd_ones(
            {each.place: (each.epoch, each.digest) for each in row.copies}, len(places)
        )
        if runs and runs[-1][1] == row.offset and runs[-1][2:] == (odd, how):
            runs[-1] = (runs[-1][0], row.offset + 1, odd, how)
        else:
            runs.append((row.offset, row.offset + 1, odd, how))
    found = [_divergence(places, *run) for run in runs]
    if len(rows) == RECORDS_MAX:
        end = rows[-1].offset + 1
        text = f"behind offset {end - 1} there may be more: so many records differ"
        found.append(Finding("divergence", "", "", -1, end, end, text, True))
    return found


def odd_ones(copies: dict[int, tuple[int, int]], count: int) -> tuple[tuple[int, ...], str]:
    """Return (which replicas differ from the majority, how); all of them where there is none.

    >>> odd_ones({0: (1, 7), 1: (1, 8), 2: (1, 7)}, 3)
    ((1,), 'another record')
    >>> odd_ones({0: (1, 7), 2: (1, 7)}, 3)
    ((1,), 'no sound record')
    >>> odd_ones({0: (1, 7), 1: (2, 7)}, 2)
    ((0, 1), 'another epoch')
    """
    usual, votes = Counter(copies.values()).most_common(1)[0]
    odd = tuple(n for n in range(count) if copies.get(n) != usual)
    if 2 * votes <= count:
        odd = tuple(range(count))
    if any(n not in copies for n in odd):
        return odd, "no sound record"
    return odd, "another epoch" if len({each[0] for each in copies.values()}) > 1 else (
        "another record"
    )


def _divergence(
    places: list[Place], first: int, end: int, odd: tuple[int, ...], how: str
) -> Finding:
    span = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
    others = [place.name for n, place in enumerate(places) if n not in odd]
    if not others:
        text = f"no two of the replicas agree at {span}: {how}"
        return Finding("divergence", "", "", -1, first, end, text)
    names = ", ".join(places[n].name for n in odd)
    text = f"{names} is odd at {span}: it has {how}; {', '.join(others)} agree"
    return Finding("divergence", names, "", -1, first, end, text)


def _headers_apart(headers: DataFrame, first: int, end: int) -> list[Finding]:
    """Report batches that differ although their records are the same."""
    rows = headers.where(f"baseOffset = {first}").collect()
    named = ", ".join(
        f"{row.replica} (epoch {row.epoch}, {row.count} records, producer {row.producerId}, "
        f"byte {row.position} of {row.segment})"
        for row in rows
    )
    text = f"the records from offset {first} to {end - 1} are the same, their batches are not: "
    return [Finding("divergence", "", "", -1, first, end, text + named)]


# --- snapshots ------------------------------------------------------------------------------------


def _snapshots(spark: SparkSession, places: list[Place], replay: Replay | None) -> list[Finding]:
    """Check the snapshots: each is sound, and those with one id hold the same bytes of records."""
    found, digests = [], dict[Any, dict[str, int]]()
    for place in places:
        for each in snapshot_ids(Disk(), place.log_path):
            path = snapshot_path(place.log_path, each)
            reason = _unsound(path)
            if reason:
                text = f"{place.name}: {reason}"
                where = (place.name, os.path.basename(path), 0, each.offset, each.offset)
                found.append(Finding("snapshot", *where, text))
            else:
                digests.setdefault(each, {})[place.name] = _content_digest(path)
    for each, by_name in digests.items():
        if len(set(by_name.values())) > 1:
            text = f"the snapshot that ends at offset {each.offset} differs between replicas: "
            text += ", ".join(f"{name} {digest:08x}" for name, digest in by_name.items())
            found.append(Finding("snapshot", "", "", -1, each.offset, each.offset, text))
    if replay is not None and digests:
        found += _replayed(spark, places, max(digests), replay)
    return found


def _unsound(path: str) -> str:
    """Return what is wrong with a snapshot; "" for one that is sound."""
    try:
        with SnapshotReader(Disk(), path) as reader:
            reader.check()
    except CorruptLog as error:
        return str(error)
    return ""


def _content_digest(path: str) -> int:
    """Return a digest of keys and values; headers and footers say when a snapshot was made."""
    digest = 0
    with SnapshotReader(Disk(), path) as reader:
        for record in reader.records():
            digest = crc32c((record.key or b"") + b"\0" + (record.value or b""), digest)
    return digest


def _replayed(
    spark: SparkSession, places: list[Place], newest: Any, replay: Replay
) -> list[Finding]:
    """Compare the newest snapshot with the log below its end, on one replica that has both."""
    for place in places:
        path = snapshot_path(place.log_path, newest)
        if not os.path.exists(path) or not place.bases() or place.bases()[0] > 0:
            continue
        reader = spark.read.format("kraftfast").option("endOffset", newest.offset)
        wanted = replay(reader.load(place.name)).select("value")
        held = spark.read.format("kraftfast-snapshot").load(path).select("value")
        missing, extra = _apart(wanted, held), _apart(held, wanted)
        if missing or extra:
            text = (
                f"the snapshot that ends at offset {newest.offset} in {place.name} is not what the "
                f"log amounts to: {missing or 'none'} missing, {extra or 'none'} not in the log"
            )
            name = os.path.basename(path)
            end = newest.offset
            return [Finding("snapshot", place.name, name, 0, end, end, text)]
        return []
    return []


def _apart(one: DataFrame, other: DataFrame) -> str:
    """Return how many values of one are not in the other, and the least of them; "" if none is."""
    rows = one.exceptAll(other).agg(*map(_sql, ("count(*) as count", "min(value) as least")))
    found = rows.first()
    assert found is not None, "an aggregate has a row"
    if not found["count"]:
        return ""
    least = found["least"]
    value = bytes(least) if isinstance(least, bytearray) else least
    return f"{found['count']:,} ({value!r:.60}{', ...' if found['count'] > 1 else ''})"
