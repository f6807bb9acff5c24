"""The HTTP session of OpenTelemetry's exporter: it bounds what a collector may answer.

It is imported with the exporter alone, which brings ``requests``.
"""

from __future__ import annotations

import io
from typing import Any

import requests

ANSWER_BYTES_MAX = 64 * 1024
READ_BYTES = 1024


class OtlpSession(requests.Session):
    """Read a part of each answer, and raise HTTPError for a redirect.

    The exporter reads answers to their end, and takes a redirect, which it does not follow, for
    success. And take the certificate that this session was given, not one of ``REQUESTS_CA_BUNDLE``
    or ``CURL_CA_BUNDLE``, which ``requests`` prefers.
    """

    def request(self, *arguments: Any, **more: Any) -> requests.Response:
        """Do as requests.Session, which takes the same."""
        more |= {"stream": True, "allow_redirects": False}
        if self.verify is not True:
            more["verify"] = self.verify
        response = super().request(*arguments, **more)
        answer = b""
        try:
            while len(answer) < ANSWER_BYTES_MAX:
                read = response.raw.read(READ_BYTES, decode_content=True)
                if not read:
                    break
                answer += read
        finally:
            response.close()  # what is left unread ends with its connection
        response.raw = io.BytesIO(answer)
        if 300 <= response.status_code < 400:
            raise requests.HTTPError(
                f"it redirects (status {response.status_code}): name where it redirects to"
            )
        return response
