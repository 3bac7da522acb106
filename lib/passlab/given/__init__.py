"""Code of exercises that the process which runs an answer may import, also during grading.

That of "day02.pass-manager" is `day02/pass_manager.py`. Most exercises need no such module. It holds, as far as the
exercise has it,

    def call(answer, case): ...   # runs an answer on a case, if not by answer(*case.build())
    def service(case): ...        # the arguments, and a function that the answer may call and not look into

the records, functions and modules that travel in its arguments and results (see `passlab.judge.travel`), and material
that its notebook shows. An answer may read and call all of it, so it holds nothing with which a value is compared: no
cases, no expected values, nothing that does the exercise. All that is in `passlab.exercises`.
"""

from passlab import course_paths

__path__ += course_paths.package_dirs("lib/passlab/given")
