"""What is said when a request cannot be answered: problem details (RFC 9457) that name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that is not answered as it was meant.

    Parameters
    ----------
    status : int
        Of HTTP.
    detail : str
        What was wrong and what to do. It may name a value that was sent, and goes to the sender alone: never to a log.
    errors : sequence of dict, default ()
        One per field: ``pointer``, ``feature``, ``code``, ``detail``.
    headers : mapping or None, default None
        Further headers of the answer.

    Examples
    --------
    >>> from dcsurv.service import Problem
    >>> Problem(404, "There is no such model.").document()["title"]
    'Not Found'
    """

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, [dict(one) for one in errors]
        self.headers = dict(headers or {})

    def document(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        out: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return {**out, "errors": self.errors} if self.errors else out


def field_error(pointer: str, code: str, detail: str, feature: str | None = None) -> dict[str, Any]:
    """Return what is wrong with one field of a request."""
    return {"pointer": pointer, "feature": feature, "code": code, "detail": detail}
