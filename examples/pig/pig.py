"""Pig: two players race to 100. Roll and add up, or hold and keep; a one loses the turn. A Python game for simulations.

`simulation.json` beside this file compares where the first player should hold against one who holds at 20:
coordinate simulate --config examples/pig/simulation.json
"""

import random

GOAL = 100


class Pig:
    """`reset` and `step` give a turn: what is seen, whose turn it is, what may be done."""

    def reset(self, seed, params, strategy):
        self.goal = params.get("goal", GOAL)
        self.dice = random.Random(seed)
        self.scores, self.player, self.pot, self.turns = [0, 0], 0, 0, 0
        return self.turn()

    def step(self, action):
        if action == "roll":
            die = self.dice.randint(1, 6)
            if die == 1:
                self.pot = 0
                self.next_player()
            else:
                self.pot += die
        else:
            self.scores[self.player] += self.pot
            self.pot = 0
            if self.scores[self.player] < self.goal:
                self.next_player()
        return self.turn()

    def next_player(self):
        self.player = 1 - self.player
        self.turns += 1

    def turn(self):
        state = {"scores": list(self.scores), "pot": self.pot, "player": self.player}
        found = {"state": state, "player": f"seat{self.player + 1}", "done": self.scores[self.player] >= self.goal}
        if found["done"]:
            found["outcome"] = f"seat{self.player + 1}"
            found["metrics"] = {"turns": self.turns, "lead": abs(self.scores[0] - self.scores[1])}
        else:
            found["actions"] = [{"id": "roll"}, {"id": "hold"}] if self.pot else [{"id": "roll"}]
        return found


def hold_at(limit):
    def choose(turn, generator):
        return "hold" if turn.state["pot"] >= limit else "roll"

    return choose


hold_at_10, hold_at_20, hold_at_30 = hold_at(10), hold_at(20), hold_at(30)
