"""The grading engine: learner code runs in a sandbox, verdicts are made elsewhere, from data.

    intake ──Job──▶ engine ──cells, cases──▶ worker (sandbox; forked from a warm parent; runs the learner's code)
                      │  ◀──outputs, values as bytes──┘
                      ├──values as bytes──▶ verifier (sandbox; hidden cases, the judge; never runs learner code)
                      │  ◀──verdicts──┘
                      └──NotebookResult──▶ recorder (the only one that holds the gradebook)

Files, in reading order: `data` (what travels inside the trusted side), `wire` (what travels to and from learner code),
`sandbox`, `frames`, `shell` and `worker` (the learner's side), `verifier`, `engine`.
"""
