"""Simulation batches: many seeded games by fixed strategies, to measure a game's balance.

`run_batch` plays an order, `replay_trace` plays a recorded game again, `plan_half_widths` says beforehand what a batch
can show. Only `configuration`, `statistics`, `seeds` and `plan` are pure; the coordinator uses no others.
"""
