"""How much of a game `offline` finds, beside `random` at equal actions: recall of planted bugs, score of quests."""
