"""The grading engine: learner code runs in a sandbox, verdicts are made elsewhere, from data.

    intake ──Job──▶ engine ──cells, cases──▶ worker (sandbox; forked from a warm parent; runs the learner's code)
                      │  ◀──outputs, values as bytes──┘
                      ├──values as bytes──▶ verifier (sandbox; hidden cases, the judge; never runs learner code)
                      │  ◀──verdicts──┘    ├──modules of TVM──▶ builder (sandbox; builds and runs each in a child)
                      │                    └──returned graphs──▶ graphs (sandbox; runs those of a question in a child)
                      └──NotebookResult──▶ recorder (the only one that holds the gradebook)

In reading order:

- `data`: what the trusted parts hand to each other; `engine`: the one in the middle, which keeps the time
- `outcomes`, `outputs`: messages to and from workers, and what is taken of them
- `wire` (`packing`, `unpacking`, `kinds`, `refusal`, `targets`, `operators`, `modules`, `tvm`): values as bytes
- `sandbox` (`linux`, `seccomp`, `landlock`, `cgroups`): the layers, each tried before it is trusted
- `warm`, `flavours`, `worker`, `shell`, `snapshots`: the learner's side
- `verifier`, `verdicts`: the judge's side; `builder`, `graphs`: where it lets modules and graphs run
"""
