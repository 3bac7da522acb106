"""Memory: liveness, arena offsets, schedules, layouts, and access patterns.

Reading order: `buffers` (live ranges, the lower bound, checks of offsets), `storages` (values that share memory),
`liveness` (of a graph), `training` (forward and backward in one graph); `allocate` (the greedy rules, and `_fast` for
thousands of buffers), `search`, `exact` (CP-SAT), `plan` and `arena` (a graph that runs in an arena). Then `tasks` (the
memory of an order), `order`, `remat` (running a task again), `layout`, `cache` (transactions and misses), `cachegrind`.
"""
