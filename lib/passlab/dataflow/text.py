"""The text form of programs, one instruction to a line, as in Bril (A. Sampson, Cornell, 2019).

    program power(x, n)
    entry:
      result = const 1
      jump loop
    loop:
      branch n body done
    ...
      return result

`#` starts a comment. `parse(show(program))` is the same program.
"""

from __future__ import annotations

import ast
import re

from passlab.dataflow.cfg import TARGETS, Block, Instruction, Program, Terminator, why_not_a_program

_HEAD = re.compile(r"program\s+([\w.]+)\s*\((.*)\)$")
_LABEL = re.compile(r"([\w.]+):$")
_ASSIGNMENT = re.compile(r"(\S+)\s*=\s*(\S.*)$")


def show(program: Program) -> str:
    """Return the text form of a program."""
    return str(program)


def parse(text: str) -> Program:
    """Return the program of a text. Raise ValueError with the number of the invalid line."""
    name, parameters = "", ()
    blocks: list[Block] = []
    label, lines = "", []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        where = f"Line {number}, `{line}`"
        if not name:
            if not (head := _HEAD.match(line)):
                raise ValueError(f"{where}: a program begins with `program name(parameter, …)`.")
            name, parameters = head[1], tuple(filter(None, re.split(r"[,\s]+", head[2].strip())))
        elif match := _LABEL.match(line):
            if label:
                raise ValueError(f"{where}: block {label} has no end. Close it with a jump, a branch or a return.")
            label, lines = match[1], []
        elif not label:
            raise ValueError(f"{where}: this is outside of all blocks. Put a label such as `entry:` before it.")
        elif line.split()[0] in TARGETS:
            blocks.append(Block(label, tuple(lines), _terminator(line.split(), where)))
            label = ""
        else:
            lines.append(_instruction(line, where))
    if not name:
        raise ValueError("The text is empty. A program begins with `program name(parameter, …)`.")
    if label:
        raise ValueError(f"The text ends inside block {label}. Close it with a jump, a branch or a return.")
    program = Program(name, parameters, tuple(blocks))
    if reason := why_not_a_program(program):
        raise ValueError(reason)
    return program


def _terminator(words: list[str], where: str) -> Terminator:
    kind, *rest = words
    count = len(rest) - TARGETS[kind]
    if kind != "return" and count != (kind == "branch"):
        form = {"jump": "jump block", "branch": "branch condition block block"}[kind]
        raise ValueError(f"{where}: expected `{form}`.")
    return Terminator(kind, tuple(rest[:count]), tuple(rest[count:]))


def _instruction(line: str, where: str) -> Instruction:
    assignment = _ASSIGNMENT.match(line)
    dest, rest = assignment.groups() if assignment else ("", line)
    op, *words = rest.split(None, 1)
    if op != "const":
        return Instruction(dest, op, tuple(words[0].split()) if words else ())
    try:
        return Instruction(dest, op, (), ast.literal_eval(words[0]))
    except (IndexError, ValueError, SyntaxError):
        raise ValueError(f"{where}: `const` takes one number, as in `x = const 3`.") from None
