"""The example that ships plays as its page says."""

from __future__ import annotations

import json
from pathlib import Path

from drivers.bridge_file import load_bridge
from tests.workers.simulation.batches import outcomes, play
from workers.simulation.configuration import load

DICE = Path(__file__).parents[3] / "examples" / "dice"


def test_the_dice_example_plays_and_its_configuration_is_valid(tmp_path: Path) -> None:

    data = (DICE / "simulation.json").read_bytes()
    assert load(data).driver_config == "bridge.json"
    config = {**json.loads(data), "runs": 300}
    game = load_bridge(DICE / "bridge.json")
    result = play(tmp_path, game, config, configuration_directory=str(DICE))
    assert result.exit_code == 0
    assert sum(outcomes(result).values()) == 100
    assert outcomes(result, 2).get("first", 0) < 20
