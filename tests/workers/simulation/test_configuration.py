"""`simulation.json` is read strictly, and every refusal names its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workers.simulation.batches import configuration
from workers.simulation.configuration import MAX_CONFIGURATION_BYTES, Objective, disclose, load
from workers.simulation.errors import ConfigurationError

POLICY = "strategies[0].policy"


def refused(data: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(data)
    assert all(fault.found and fault.allowed for fault in caught.value.refused)
    return [fault.key for fault in caught.value.refused]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"version": 2}, "version"),
        ({"version": True}, "version"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": "18446744073709551616"}, "seed"),
        ({"seed": "-0"}, "seed"),
        ({"seed": " 1"}, "seed"),
        ({"seed": "1e3"}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": ""}, "seed"),
        ({"seed": []}, "seed"),
        ({"runs": 0}, "runs"),
        ({"runs": "20"}, "runs"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"workers": 0}, "workers"),
        ({"workers": -2}, "workers"),
        ({"sesed": 3}, "sesed"),
        ({"strategies": []}, "strategies"),
        ({"strategies": {}}, "strategies"),
        ({"strategies": ["random"]}, "strategies[0]"),
        ({"strategies": [{"name": "a"}]}, "strategies[0]"),
        ({"strategies": [{"name": "", "policy": "random"}]}, "strategies[0].name"),
        ({"strategies": [{"name": "a\x1b[2J", "policy": "random"}]}, "strategies[0].name"),
        ({"strategies": [{"name": "a", "policy": "random"}, {"name": "a", "policy": "last"}]}, "strategies[1].name"),
        ({"strategies": [{"name": "a", "policy": "best"}]}, POLICY),
        ({"strategies": [{"name": "a", "policy": {"kind": "best"}}]}, f"{POLICY}.kind"),
        ({"strategies": [{"name": "a", "policy": {"kind": "weighted"}}]}, f"{POLICY}.weights"),
        ({"strategies": [{"name": "a", "policy": {"kind": "weighted", "weights": {"x": -1}}}]}, f"{POLICY}.weights.x"),
        ({"strategies": [{"name": "a", "policy": {"kind": "weighted", "weights": {"x": 0}}}]}, f"{POLICY}.weights"),
        ({"strategies": [{"name": "a", "policy": {"kind": "python", "entry": "no colon"}}]}, f"{POLICY}.entry"),
        ({"strategies": [{"name": "a", "policy": {"kind": "first", "weights": {}}}]}, f"{POLICY}.weights"),
        ({"strategies": [{"name": "a", "policy": "first", "colour": 1}]}, "strategies[0].colour"),
        ({"strategies": [{"name": "a", "seats": {}}]}, "strategies[0].seats"),
        ({"strategies": [{"name": "a", "seats": {"x": "best"}}]}, "strategies[0].seats.x"),
        ({"variants": []}, "variants"),
        ({"variants": [{"name": "v"}, {"name": "v"}]}, "variants[1].name"),
        ({"variants": [{"name": "v", "params": 3}]}, "variants[0].params"),
        ({"variants": [{"name": "v", "param": {}}]}, "variants[0].param"),
        ({"params": []}, "params"),
        ({"objective": {}}, "objective"),
        ({"objective": {"win": [], "metric": "x"}}, "objective"),
        ({"objective": {"win": []}}, "objective.win"),
        ({"objective": {"metric": "x"}}, "objective.direction"),
        ({"objective": {"metric": "x", "direction": "up"}}, "objective.direction"),
        ({"objective": {"win": ["a"], "direction": "maximize"}}, "objective.direction"),
        ({"driver_config": 3}, "driver_config"),
        ({"variants": [{"name": f"v{n}"} for n in range(33)]}, "strategies x variants"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(changes: dict[str, Any], key: str) -> None:
    assert refused({**configuration(), **changes}) == [key]


@pytest.mark.parametrize("key", ["version", "seed", "runs", "max_steps", "workers", "strategies"])
def test_a_missing_key_is_named(key: str) -> None:
    assert key in refused(configuration(**{key: None}))


def test_all_faults_are_listed_at_once() -> None:
    assert refused({**configuration(), "seed": -1, "runs": 0, "typo": 1}) == ["typo", "seed", "runs"]


@pytest.mark.parametrize("seed", [0, 1, 2**53 + 1, 2**64 - 1])
def test_seeds_keep_every_digit_as_number_and_as_text(seed: int) -> None:
    as_number = load(json.dumps(configuration(seed=seed)).encode())
    as_text = load(json.dumps(configuration(seed=str(seed))).encode())
    assert as_number.seed == as_text.seed == seed


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{",
        b"\xff",
        b'{"seed": NaN}',
        b'{"seed": 1e999}',
        b'{"seed": 1, "seed": 2}',
        b"[" * 50_000,
        b" " * (MAX_CONFIGURATION_BYTES + 1),
    ],
)
def test_a_file_that_is_no_strict_json_object_is_refused(data: bytes) -> None:
    assert refused(data) == ["(whole file)"]


def test_runs_go_round_strategies_and_variants() -> None:
    read = load(
        configuration(
            strategies=[{"name": "a", "policy": "random"}, {"name": "b", "policy": "first"}],
            variants=[{"name": "u"}, {"name": "v"}, {"name": "w"}],
        )
    )
    assert [(s.name, v.name) for s, v in read.cells] == [(s, v) for s in "ab" for v in "uvw"]
    assert [read.locate(index) for index in (0, 5, 6, 13)] == [(0, 0), (0, 5), (1, 0), (2, 1)]


def test_an_objective_is_read() -> None:
    assert load(configuration(objective={"win": ["a", "b"]})).objective == Objective(win=("a", "b"))
    assert load(configuration(objective={"metric": "gold", "direction": "minimize"})).objective == Objective(
        metric="gold", direction="minimize"
    )


def test_a_service_sees_no_command_path_module_or_parameter() -> None:
    read = load(
        configuration(
            strategies=[{"name": "mine", "seats": {"x": {"kind": "python", "entry": "secret.module:play"}}}],
            params={"secret_parameter": 1},
            driver_config="secret/bridge.json",
        )
    )
    seen = disclose(read)
    assert "secret" not in json.dumps(seen)
    assert seen["strategies"] == [{"name": "mine", "policies": ["python"]}]
    assert set(seen) == {"version", "seed", "runs", "max_steps", "workers", "strategies"}
