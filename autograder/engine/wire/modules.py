"""Modules as data: which classes may travel, and what an instance is made of.

A module is its class (a name in a table), its training flag, its parameters, buffers and children, and its settings:
what else stands in its `__dict__` as plain data (`stride`, `p`, `inplace`). It is made again without its `__init__`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import fx, nn
from torch.fx._lazy_graph_module import _LazyGraphModule

from autograder.engine.wire.kinds import is_word
from autograder.engine.wire.refusal import Refused
from passlab.exercises.day01 import swap_relu as cases_day01_swap
from passlab.fx.ops import ConvReLU2d

#: What every module has, and what is set up again for every GraphModule.
_TRACED = """_graph meta _tracer_cls _tracer_extras _replace_hooks _create_node_hooks _erase_node_hooks _deepcopy_hooks
    shape_env _code _lineno_map _prologue_start _in_spec _out_spec"""
_INNER = {*vars(nn.Module()), *_TRACED.split()}
#: Lists of the parameters that are there already; `remake` sets them up again.
_DERIVED = {"_flat_weights", "_flat_weight_refs"}
_HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]


def _classes() -> dict[str, type]:
    """Names → classes: torch.nn, without modules that have no shape yet or that need several processes."""
    found = {
        f"torch.nn.{name}": getattr(nn, name)
        for name in nn.modules.__all__
        if not name.startswith("Lazy") and name != "SyncBatchNorm"
    }
    inner = nn.modules.linear.NonDynamicallyQuantizableLinear
    return found | {
        f"torch.nn.modules.linear.{inner.__name__}": inner,
        "passlab.fx.ops.ConvReLU2d": ConvReLU2d,
        "cases_day01_swap.ReLU": cases_day01_swap.ReLU,
        "cases_day01_swap.Clipped": cases_day01_swap.Clipped,
    }


CLASSES = {name: cls for name, cls in _classes().items() if isinstance(cls, type) and issubclass(cls, nn.Module)}
_NAMES = {cls: name for name, cls in CLASSES.items()}


def class_name(module: nn.Module, where: str) -> str:
    """The name of the module's class; raises Refused for a class of the learner's own, or one that torch made up."""
    cls = type(module)
    if cls in _NAMES:
        return _NAMES[cls]
    if "parametriz" in getattr(cls, "__module__", "") or hasattr(module, "parametrizations"):
        raise Refused(
            f"{where} is parametrized. Make it plain with torch.nn.utils.parametrize.remove_parametrizations."
        )
    raise Refused(
        f"{where} is a {cls.__name__}, a module of your own: a graph may hold modules of torch.nn, and passlab's. "
        f"Put what it does into the graph as nodes."
    )


def unhooked(module: nn.Module, where: str) -> None:
    """Raise Refused if the module has hooks: functions that would stay behind."""
    state = vars(module)
    if any(state.get(name) for name in _HOOKS):
        raise Refused(f"{where} has a hook, a function that would stay behind. Remove it before you return the graph.")


def settings(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What stands in a module's `__dict__` beside what every module has."""
    for name, value in vars(module).items():
        if name not in _INNER and name not in _DERIVED:
            yield name, value


def may_be_set(cls: type, name: Any) -> bool:
    """May an instance of `cls` carry `name` in its `__dict__`? Not if it hides a method, and not torch's own fields."""
    if not is_word(name) or name.startswith("__") or name in _INNER or name in _DERIVED:
        return False
    return not any(name in vars(base) for base in cls.__mro__)


def blank(cls: type) -> nn.Module:
    """An instance of a class of the table, with nothing in it."""
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    return module


def remake(module: nn.Module) -> None:
    """Set up what is derived: recurrent layers keep a list of their parameters beside them."""
    if isinstance(module, nn.RNNBase):
        weights = [module._parameters.get(name) for name in vars(module).get("_flat_weights_names", ())]
        module.__dict__["_flat_weights"] = weights
        module.__dict__["_flat_weight_refs"] = [None if w is None else weakref.ref(w) for w in weights]


def part(root: nn.Module, path: str) -> str:
    """What `root` has at a path: "part" (a module, parameter, buffer or setting), "missing", or "other".

    "other" is what Python would find there and a graph has no business with: a method, a field of torch's.
    """
    at: Any = root
    *inner, last = path.split(".")
    for name in inner:
        below = vars(at)["_modules"].get(name)
        if below is None:
            return "missing" if name in vars(at)["_modules"] or not _has(at, name) else "other"
        at = below
    return "part" if name_in(at, last) else "other" if _has(at, last) else "missing"


def name_in(module: nn.Module, name: str) -> bool:
    state = vars(module)
    held = any(name in state[kind] for kind in ("_modules", "_parameters", "_buffers"))
    return held or (name in state and may_be_set(type(module), name))


def _has(module: nn.Module, name: str) -> bool:
    return name_in(module, name) or name in vars(module) or any(name in vars(base) for base in type(module).__mro__)


def lazy_graph_module(class_name: str) -> fx.GraphModule:
    """A GraphModule without a graph yet. It compiles its code when it is first run, not when it is made."""
    gm = _LazyGraphModule.__new__(_LazyGraphModule)
    nn.Module.__init__(gm)
    type(gm).__name__ = class_name
    gm.__dict__.update(
        _tracer_cls=None, _tracer_extras={}, meta={}, _replace_hooks=[], _create_node_hooks=[], _erase_node_hooks=[],
        _deepcopy_hooks=[], shape_env=None,
    )  # fmt: skip
    return gm


def with_graph(gm: fx.GraphModule, graph: fx.Graph) -> None:
    """Give a lazy GraphModule its graph."""
    gm.__dict__["_graph"] = graph
    graph.owning_module = gm
