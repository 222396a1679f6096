"""A bridge whose only turn shows what its process was given."""

import json
import os
import resource
import sys
from pathlib import Path

Path("written").write_text("by the game")
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        result: dict[str, object] = {"name": "showing", "protocol": 1}
    else:
        state = {
            "environment": sorted(os.environ),
            "playtest": request["params"].get("playtest"),
            "core_limit": resource.getrlimit(resource.RLIMIT_CORE)[0],
        }
        result = {"state": state, "done": True, "seed": request["params"].get("seed")}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
