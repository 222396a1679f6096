"""An operator's wish to stop: a file that anybody may write by hand, whatever is in it."""

from __future__ import annotations

from coordinator import rules
from coordinator.errors import CoordinatorError
from coordinator.files import read_document
from coordinator.records import Stop, read_record

MAX_REQUEST_BYTES = 64 << 10


def read_stop_request(path: str) -> Stop | None:
    """The wish, or None if there is none. One that cannot be read still means: stop."""
    try:
        document, _ = read_document(path, MAX_REQUEST_BYTES)
        wish = read_record(document, Stop, path)
        rules.read_stop(wish, "")
    except FileNotFoundError:
        return None
    except CoordinatorError as error:
        return Stop(reason="operator_request", detail=f"a stop request that cannot be read: {error}")
    return Stop(reason=wish.reason, detail=wish.detail)
