"""Which versions we speak, how two sides agree on one, and the rules of ApiVersions (KIP-511).

On every new connection a raft client first asks ApiVersions, then uses the highest version that
both sides have. An ApiVersions request whose own version is unknown is still answered: see
``frame.unsupported_api_versions``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kraftfast.errors import ErrorCode, UnsupportedVersion
from kraftfast.wire import messages
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.notation import Versions

SERVED: Mapping[int, Versions] = MappingProxyType(dict(sorted(messages.SERVED.items())))
"""Every API that we speak, with its versions."""

PRODUCE_ADVERTISED = Versions(0, SERVED[ApiKey.PRODUCE].last)
"""librdkafka turns compression off where Produce does not begin at 0, so Kafka says it does."""

VOTE_PRE_VOTE_VERSION = 2
"""From here on Vote has a pre-vote: a client that asks with less does not know it."""
KRAFT_VERSION = "kraft.version"
CLIENT_NAME, CLIENT_VERSION = "kraftfast", "0.1.0"
"""What we say of ourselves in ApiVersions (KIP-511)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def negotiate(
    api_key: int, offered: Mapping[int, Versions], ours: Mapping[int, Versions] = SERVED
) -> int:
    """Return the highest version that both sides have of an API.

    Raises :class:`UnsupportedVersion` if there is none.
    """
    mine, theirs = ours.get(api_key), offered.get(api_key)
    if mine is not None and theirs is not None:
        version = min(mine.last, theirs.last)
        if version >= max(mine.first, theirs.first):
            return version
    known = f" ({ApiKey(api_key).name})" if api_key in SERVED else ""
    raise UnsupportedVersion(
        f"no common version of API {api_key}{known}: "
        f"ours {mine or 'none'}, theirs {theirs or 'none'}"
    )


def offered_versions(response: messages.ApiVersionsResponse) -> dict[int, Versions]:
    """Return what the other side's ApiVersions response says, for :func:`negotiate`."""
    return {
        entry.api_key: Versions(entry.min_version, entry.max_version) for entry in response.api_keys
    }


def api_versions_refusal(request: messages.ApiVersionsRequest, version: int) -> ErrorCode:
    """Return INVALID_REQUEST for an ApiVersions request that Kafka refuses, else NONE.

    From v3 a client names its software in a narrow alphabet (KIP-511); from v5 it gives both the
    cluster id and the node id that it thinks it talks to, or neither (KIP-1242).
    """
    if version >= 3:
        for name in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(name):
                return ErrorCode.INVALID_REQUEST
    if version >= 5 and (request.cluster_id is None) != (request.node_id == -1):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def api_versions_response(
    version: int,
    served: Mapping[int, Versions] = SERVED,
    supported: Mapping[str, Versions] = MappingProxyType({}),
    finalized: Mapping[str, int] = MappingProxyType({}),
    finalized_epoch: int = -1,
) -> messages.ApiVersionsResponse:
    """Return the answer to an ApiVersions request of ``version``.

    ``supported`` gives the levels that this node can run of each feature, ``finalized`` the level
    in force as of metadata offset ``finalized_epoch`` (-1: unknown). Below v4 clients choke on a
    feature that begins at 0, so it is left out there; a kraft.version that is still 0 counts as
    not finalized.
    """
    response = messages.ApiVersionsResponse
    return response(
        api_keys=[
            response.ApiKey(key, *(PRODUCE_ADVERTISED if key == ApiKey.PRODUCE else versions))
            for key, versions in sorted(served.items())
        ],
        supported_features=[
            response.SupportedFeature(name, *levels)
            for name, levels in sorted(supported.items())
            if version >= 4 or levels.first > 0
        ],
        finalized_features_epoch=finalized_epoch,
        finalized_features=[
            response.FinalizedFeature(name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.items())
            if not (name == KRAFT_VERSION and level == 0)
        ],
    )
