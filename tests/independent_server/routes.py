"""The paths of the playtest protocol: `/api/v1/games/{game}/playtest/...`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from tests.independent_server.terms import RefusalError

# Route name by method and the words of the path after `playtest/`; {job}, {run} and {sum} stand for any one word. A
# run is found below its job and by itself: the protocol's `.../runs/{run}` can be read either way.
_RUN_ROUTES = {
    ("GET", ""): "run",
    ("POST", "/transition"): "transition",
    ("POST", "/heartbeat"): "heartbeat",
    ("POST", "/complete"): "complete",
    ("POST", "/select-action"): "select-action",
    ("POST", "/model"): "model",
    ("POST", "/uploads"): "uploads",
    ("GET", "/uploads/{sum}"): "upload",
    ("PUT", "/uploads/{sum}"): "upload",
}
ROUTES: dict[tuple[str, str], str] = {
    ("GET", "pack"): "pack",
    ("POST", "estimate"): "estimate",
    ("POST", "jobs"): "jobs",
    ("GET", "jobs"): "lookup",
    ("GET", "jobs/{job}"): "job",
    ("POST", "jobs/{job}/finish"): "finish",
    ("POST", "jobs/{job}/aggregate"): "aggregate",
    **{(method, "jobs/{job}/runs/{run}" + end): name for (method, end), name in _RUN_ROUTES.items()},
    **{(method, "runs/{run}" + end): name for (method, end), name in _RUN_ROUTES.items()},
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a request points: game, route, and the words that stood for {job}, {run} and {sum}."""

    game: str
    route: str
    job_id: str | None
    run_id: str | None
    checksum: str | None


def find_place(method: str, path: str) -> Place:
    """Raises RefusalError: 404 for an unknown path, 405 for a known path under another method."""
    parts = [unquote(part) for part in path.split("/")]
    if len(parts) < 7 or parts[:4] != ["", "api", "v1", "games"] or parts[5] != "playtest":
        raise RefusalError(404, "not_found", f"no such path: {path}")
    other_methods = []
    for (route_method, pattern), name in ROUTES.items():
        wanted = pattern.split("/")
        if len(wanted) != len(parts) - 6:
            continue
        pairs = list(zip(wanted, parts[6:], strict=True))
        if any(word != part and not word.startswith("{") for word, part in pairs):
            continue
        if route_method != method:
            other_methods.append(route_method)
            continue
        held = {word: part for word, part in pairs if word.startswith("{")}
        return Place(
            game=parts[4],
            route=name,
            job_id=held.get("{job}"),
            run_id=held.get("{run}"),
            checksum=held.get("{sum}"),
        )
    if other_methods:
        raise RefusalError(405, "method_not_allowed", f"{path} takes {', '.join(other_methods)}; found {method}")
    raise RefusalError(404, "not_found", f"no such path: {path}")
