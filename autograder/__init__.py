"""The grader: runs and judges learners' notebooks, for instructors."""

import sys

# jsonschema, which nbformat imports, would compile the grammars of internationalized addresses at every start: 2 s, for
# a check that notebooks do not use. A package that is None here counts as not installed.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
