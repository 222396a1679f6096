"""Language models as players: what is asked, over which wire, within which budget, and what the answer means."""
