"""What the answers of several exercises of day 5 do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from passlab.memory.tasks import Task


def reads_counted_twice(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks with the memory of each repeated read as scratch, as if the result took its room again."""
    size = {task.name: task.size for task in tasks}

    def repeated(task: Task) -> int:
        return sum(size[read] for read in task.reads) - sum(size[read] for read in {*task.reads})

    return [replace(task, scratch=task.scratch + repeated(task)) for task in tasks]
