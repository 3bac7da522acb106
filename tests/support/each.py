"""A test class for each exercise: the tests of one class run in turn, those of another may run beside them."""

from __future__ import annotations

from collections.abc import Callable

from passlab import exercises


def for_each_exercise(check: Callable) -> dict[str, type]:
    """Name → class, for a module's globals. `check(exercise_id, apart)` is the test (`apart`: see conftest)."""

    def of(exercise_id: str) -> type:
        class Exercise:
            def test_it_holds(self, apart):
                check(exercise_id, apart)

        return Exercise

    ids = [exercise.id for day in exercises.days() for exercise in exercises.of_day(day)]
    return {"Test_" + name.replace(".", "_").replace("-", "_"): of(name) for name in ids}
