"""A priced playtest service written from the table of its protocol alone, for tests that need a second opinion.

It listens on 127.0.0.1, keeps everything in memory under one lock, and charges once for a key with equal bytes.
Where the protocol is silent it takes the reading that refuses least, and says so where it does.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.independent_server.books import Books, Charge, Job, Refund, Run
from tests.independent_server.door import Answer, Door, Request, read_json
from tests.independent_server.routes import Place, find_place
from tests.independent_server.terms import JsonObject, RefusalError, Terms, estimate, pack, quote, read_order, whole

WAIT_LIMIT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Received:
    """One whole request and the status it was answered with; the token itself is never kept."""

    method: str
    path: str
    route: str
    key: str | None
    body: bytes
    token_kind: str
    status: int


class IndependentServer:
    """The running service and, beside its HTTP door, what a test may see and turn.

    `terms` holds the switches; `charges`, `refunds`, `jobs`, `runs`, `requests` are copies of what happened so far.
    """

    def __init__(self, *, balance_cents: int = 10_000, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self._books = Books(balance_cents)
        self._changed = threading.Condition(threading.RLock())
        self._requests: list[Received] = []
        self._files: dict[str, bytes] = {}
        self._edits: dict[str, list[Callable[[JsonObject], None]]] = {}
        self._door = Door(self._answer)

    # The control interface.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self._door.port

    @property
    def torn_requests(self) -> int:
        """Requests that ended before their stated length; none of them was acted upon."""
        return self._door.torn_requests

    @property
    def charges(self) -> list[Charge]:
        with self._changed:
            return list(self._books.charges)

    @property
    def refunds(self) -> list[Refund]:
        with self._changed:
            return list(self._books.refunds)

    @property
    def jobs(self) -> dict[str, Job]:
        with self._changed:
            return copy.deepcopy(self._books.jobs)

    @property
    def runs(self) -> dict[str, Run]:
        with self._changed:
            return copy.deepcopy(self._books.runs)

    @property
    def requests(self) -> list[Received]:
        with self._changed:
            return list(self._requests)

    @property
    def files(self) -> dict[str, bytes]:
        """Every uploaded file by its SHA-256."""
        with self._changed:
            return dict(self._files)

    @property
    def balance_cents(self) -> int:
        with self._changed:
            return self._books.balance_cents

    def imbalance_cents(self) -> int:
        """0 when balance, charges and refunds agree."""
        with self._changed:
            return self._books.imbalance_cents()

    def deposit(self, cents: int) -> None:
        """Adds to the balance; a negative amount takes away."""
        with self._changed:
            self._books.deposit(cents)

    def move_price(self, cents: int, *, run_length: str = "standard") -> None:
        """Another price per run from now on: a registration that confirms the old one gets 409 price_moved."""
        with self._changed:
            self.terms.prices_cents[run_length] = cents

    def request_cancel(self, job_id: str) -> None:
        """From now on every answer about the job and its runs says `cancel_requested`."""
        with self._changed:
            self._books.jobs[job_id].cancel_requested = True

    def settle_job(self, job_id: str, state: str) -> None:
        """The server ends the job itself (`stalled`, `canceled`, `budget_exceeded`, ...); open runs are refunded."""
        with self._changed:
            self._books.settle(self._books.jobs[job_id], state)

    def close_run(self, run_id: str, state: str) -> None:
        """The server closes one open run itself and refunds it."""
        with self._changed:
            self._books.close_run(self._books.runs[run_id], state)

    def refuse_heartbeats(self, status: int | None) -> None:
        """Answers every heartbeat with this status (401, 403, 404, 409); None accepts them again."""
        self.terms.heartbeat_refusal = status

    def forget_keys(self) -> None:
        """The window of every idempotency key is over: whoever resends one is charged again."""
        with self._changed:
            self._books.forget_keys()

    def edit(self, route: str, change: Callable[[JsonObject], None]) -> None:
        """Changes each later success of a route just before it is sent; what the server remembers stays as it is."""
        with self._changed:
            self._edits.setdefault(route, []).append(change)

    def drop(self, route: str, dotted_key: str) -> None:
        """Leaves a key out of a route's answers; a list on the way means each of its items (`runs.playtest_token`)."""
        self.edit(route, lambda answer: drop_key(answer, dotted_key.split(".")))

    def answer_faithfully(self) -> None:
        """Takes back every `edit` and `drop`."""
        with self._changed:
            self._edits.clear()

    def wait_for_requests(self, route: str, count: int, *, limit_seconds: float = WAIT_LIMIT_SECONDS) -> list[Received]:
        """The requests of a route once there are at least `count`; raises TimeoutError with what there is."""

        def there() -> list[Received]:
            return [request for request in self._requests if request.route == route]

        with self._changed:
            if not self._changed.wait_for(lambda: len(there()) >= count, timeout=limit_seconds):
                raise TimeoutError(f"{len(there())} of {count} requests of {route} came in {limit_seconds} s")
            return there()

    def wait_for_torn_requests(self, count: int, *, limit_seconds: float = WAIT_LIMIT_SECONDS) -> None:
        """Returns once that many requests were torn in all; raises TimeoutError."""
        self._door.wait_for_torn_requests(count, limit_seconds)

    def close(self) -> None:
        """Stops listening, ends open connections, waits for every thread; raises what failed inside a handler."""
        self._door.close()

    # The protocol.

    def _answer(self, request: Request) -> Answer:
        target = urlsplit(request.target)
        route, token_kind = "", "none"
        with self._changed:
            try:
                place = find_place(request.method, target.path)
                route = place.route
                token_kind = self._authorize(place, request)
                body = self._serve(place, request, parse_qs(target.query))
                for change in self._edits.get(route, []):
                    change(body)
                answer = Answer(200, body)
            except RefusalError as refusal:
                answer = Answer(refusal.status, {"error": {"code": refusal.code, "message": refusal.message}})
            self._requests.append(
                Received(
                    method=request.method,
                    path=target.path,
                    route=route,
                    key=request.headers.get("idempotency-key"),
                    body=request.body,
                    token_kind=token_kind,
                    status=answer.status,
                )
            )
            self._changed.notify_all()
        return answer

    def _authorize(self, place: Place, request: Request) -> str:
        """`account` for an account's token, `run` for a run's own; a run's token opens nothing but that run."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise RefusalError(401, "unauthorized", "an Authorization header with a bearer token is needed")
        if token in self.terms.account_tokens:
            kind = "account"
        else:
            owners = [run.run_id for run in self._books.runs.values() if run.token == token]
            if not owners:
                raise RefusalError(401, "unauthorized", "the token is not known")
            if place.run_id not in owners:
                raise RefusalError(403, "forbidden", "a run's token is good for that run only")
            kind = "run"
        if place.game not in self.terms.games:
            raise RefusalError(404, "not_found", f"no game {place.game}")
        return kind

    def _serve(self, place: Place, request: Request, query: dict[str, list[str]]) -> JsonObject:
        books, terms, game = self._books, self.terms, place.game
        if place.route == "pack":
            return pack(terms)
        if place.route == "estimate":
            answer = estimate(read_order(read_json(request), terms), terms, books.balance_cents)
            if terms.price_after_quote_cents is not None:
                terms.prices_cents = dict.fromkeys(terms.prices_cents, terms.price_after_quote_cents)
                terms.price_after_quote_cents = None
            return answer
        if place.route == "jobs":
            return self._register(game, request)
        if place.route == "lookup":
            keys = query.get("idempotency_key", [])
            if len(keys) != 1:
                raise RefusalError(400, "invalid_request", f"one idempotency_key is needed; found {len(keys)}")
            return self._purchase(books.job_of_key(game, keys[0]), replayed=True)
        if place.run_id is not None:
            return self._serve_run(place, books.run(game, place.job_id, place.run_id), request)
        job = books.job(game, place.job_id or "")
        if place.route == "finish":
            reason = read_json(request, may_be_empty=True).get("reason")
            if reason is not None and not isinstance(reason, str):
                raise RefusalError(400, "invalid_request", f"reason must be a string; found {reason!r}")
            books.finish(job, reason)
        elif place.route == "aggregate":
            books.put_aggregate(job, read_json(request))
        return {"job": job_view(job)}

    def _register(self, game: str, request: Request) -> JsonObject:
        key = request.headers.get("idempotency-key")
        if not key:
            raise RefusalError(400, "invalid_request", "an Idempotency-Key header is needed; nothing was charged")
        bought = self._books.replay(game, key, request.body)
        if bought is not None:
            return self._purchase(bought, replayed=True)
        sent = read_json(request)
        order = read_order(sent, self.terms)
        confirmed = whole(sent, "confirm_price_cents", least=0)
        build = sent.get("build")
        if not isinstance(sent.get("cli_version"), str):
            raise RefusalError(400, "invalid_request", "cli_version must be a string; nothing was charged")
        if not isinstance(build, dict) or not all(isinstance(build.get(name), str) for name in ("kind", "ref")):
            raise RefusalError(400, "invalid_request", "build must have the strings kind and ref; nothing was charged")
        price = quote(order, self.terms)
        if confirmed != price.total_cents:
            raise RefusalError(
                409, "price_moved", f"{confirmed} cents were confirmed, the price is {price.total_cents}; not charged"
            )
        job = self._books.buy(game, key, request.body, order, price, self.terms)
        return self._purchase(job, replayed=False)

    def _purchase(self, job: Job, *, replayed: bool) -> JsonObject:
        return {
            "job_id": job.job_id,
            "replayed": replayed,
            "price": {"price_cents": job.cents},
            "runs": [self._run_view(run, with_token=True) for run in job.runs],
            "job": job_view(job),
        }

    def _run_view(self, run: Run, *, with_token: bool = False) -> JsonObject:
        view: JsonObject = {
            "run_id": run.run_id,
            "module": run.module,
            "persona": run.persona,
            "controller": run.controller,
            "state": run.state,
            "limits": {"wall_seconds": self.terms.wall_seconds},
            "budget": {"wall_seconds_max": self.terms.wall_seconds},
        }
        if self.terms.extra_keys:
            view["repetition"] = run.repetition
        if with_token:
            view["playtest_token"] = run.token
        return view

    def _serve_run(self, place: Place, run: Run, request: Request) -> JsonObject:
        job = self._books.jobs[run.job_id]
        if place.route == "transition":
            state = read_json(request).get("state")
            self._books.transition(run, state, one_at_a_time=self.terms.one_state_at_a_time)
        elif place.route == "heartbeat":
            if self.terms.heartbeat_refusal is not None:
                raise RefusalError(self.terms.heartbeat_refusal, "heartbeat_refused", "this heartbeat is refused")
            sent = read_json(request)
            self._books.heartbeat(run, whole(sent, "actions_taken", least=0), whole(sent, "checkpoint_step", least=0))
        elif place.route == "complete":
            sent = read_json(request)
            whole(sent, "actions_taken", least=0)
            if not isinstance(sent.get("state"), str) or not isinstance(sent.get("quit_reason"), str):
                raise RefusalError(400, "invalid_request", "state and quit_reason must be strings")
            self._books.complete(run, sent, self.terms)
            return {"run": self._run_view(run), "report_lint": list(run.report_lint)}
        elif place.route in ("select-action", "model"):
            handler = self.terms.select_action if place.route == "select-action" else self.terms.model
            if handler is None:
                raise RefusalError(404, "not_supported", f"this server does not offer {place.route}")
            if not run.is_open:
                raise RefusalError(409, "run_settled", f"run {run.run_id} is {run.state}")
            return handler(read_json(request))
        elif place.route == "uploads":
            sent = read_json(request)
            checksum, content = sent.get("sha256"), sent.get("content_base64")
            if not isinstance(checksum, str) or not isinstance(content, str | None):
                raise RefusalError(
                    400, "invalid_request", "sha256, and content_base64 when it is there, must be strings"
                )
            return self._take_file(run, checksum, None if content is None else read_base64(content))
        elif place.route == "upload":
            return self._take_file(run, place.checksum or "", request.body if request.method == "PUT" else None)
        return {"run": self._run_view(run), "cancel_requested": job.cancel_requested}

    def _take_file(self, run: Run, checksum: str, content: bytes | None) -> JsonObject:
        """Without content only says whether the file is there. The protocol names no body for a file, so a JSON body
        with `sha256` and `content_base64` and a PUT of the plain bytes under their checksum are both taken."""
        if content is not None and checksum not in self._files:
            found = hashlib.sha256(content).hexdigest()
            if found != checksum:
                raise RefusalError(422, "checksum_mismatch", f"the bytes have SHA-256 {found}, not {checksum}")
            self._files[checksum] = content
        if checksum in self._files:
            run.uploads.add(checksum)
        return {"sha256": checksum, "present": checksum in self._files}


def job_view(job: Job) -> JsonObject:
    return {"job_id": job.job_id, "state": job.state, "cancel_requested": job.cancel_requested}


def read_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise RefusalError(400, "invalid_request", f"content_base64: {error}") from error


def drop_key(value: Any, path: list[str]) -> None:
    """Removes the key at the end of the path wherever it occurs."""
    if isinstance(value, list):
        for item in value:
            drop_key(item, path)
    elif isinstance(value, dict) and len(path) == 1:
        value.pop(path[0], None)
    elif isinstance(value, dict) and path[0] in value:
        drop_key(value[path[0]], path[1:])


@contextmanager
def serving(*, balance_cents: int = 10_000, terms: Terms | None = None) -> Iterator[IndependentServer]:
    """A running server for the length of a `with`; a failure inside one of its handlers fails the test."""
    server = IndependentServer(balance_cents=balance_cents, terms=terms)
    try:
        yield server
    finally:
        server.close()
