"""Memory: what lives when, where it lies, in which order it is made, and how it is touched.

Reading order: `buffers` (live ranges, the lower bound, what a bad plan breaks), `storages` (values that share memory),
`liveness` (of a graph), `training` (forward and backward in one graph); `allocate` (the greedy rules), `search`,
`exact` (CP-SAT), `plan` and `arena` (a plan that runs). Then `tasks` (what an order needs),
`order`, `remat` (running a task again), `layout`, `cache` (transactions and misses) and `cachegrind`.
"""
