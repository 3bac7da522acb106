"""Programs of day 6, and why a result is not a fact about each of their blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.dataflow import Program, parse
from passlab.judge import Case
from passlab.judge.forms import why_not_a_dict

#: A loop with a branch in it: everything of the day happens here.
COUNT = parse("""
program count(x, n)
entry:
  sum = const 0
  i = const 0
  step = const 1
  big = const 10
  jump loop
loop:
  more = lt i n
  branch more body done
body:
  much = gt sum big
  branch much less further
less:
  sum = sub sum x
  jump next
further:
  sum = add sum i
  jump next
next:
  i = add i step
  jump loop
done:
  return sum
""")

STRAIGHT = parse("""
program straight(x, y)
entry:
  a = add x y
  a = mul a a
  b = neg y
  return a
""")

#: A loop without an end: no path from it leads to a return.
FOR_EVER = parse("""
program server(x, n)
entry:
  y = neg x
  branch n serve stop
serve:
  print x
  jump again
again:
  n = add n x
  jump serve
stop:
  return y
""")

#: The entry is the head of a loop: its fact comes from outside and from the loop.
ENTRY_IN_LOOP = parse("""
program round(n)
entry:
  m = add n n
  n = sub n m
  branch n entry done
done:
  m = add n n
  return m
""")

#: A jump into a loop: neither block of the loop dominates the other.
TWO_ENTRIES = parse("""
program irreducible(x, n)
entry:
  s = const 0
  branch n left right
left:
  s = add s x
  x = neg n
  jump right
right:
  n = sub n x
  branch n left done
done:
  t = add s x
  return t
""")


def program_case(name: str, program: Program, about: tuple[str, ...] = ()) -> Case:
    """Return a case of a program, which no inputs go with. about: the verdicts that it decides, if not all."""
    return Case(name, lambda: (program,), about=about)


def fact_shown(fact: Any) -> str:
    """Return a fact in few words."""
    if isinstance(fact, tuple):
        return "{" + ", ".join(e if isinstance(e, str) else " ".join(map(str, e)) for e in fact[:8]) + "}"
    return "unreached" if fact is None else str(fact)[:120]


def why_not_by_block(
    program: Program,
    value: Any,
    form: str,
    entry: str = "entry in the result",
    each: Callable[[str, Any], str] = lambda block, fact: "",
) -> str:
    """Return why a value is not a dict with an entry for each block of a program, or "".

    each: returns what is wrong with the entry of a block, or "".
    """
    names = [block.name for block in program.blocks]
    kind = f"the name of a block of {program.name}"
    return why_not_a_dict(value, form, names, entry, kind, each, label="Block {}")
