"""Modules as data: the classes that may travel, and the parts of an instance.

A module is its class (a name in a table), its training flag, its parameters, buffers and children, and its settings:
the other plain data in its `__dict__` (`stride`, `p`, `inplace`). It is rebuilt without calling `__init__`.
"""

from __future__ import annotations

import weakref
from collections import ChainMap
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx, nn
from torch.fx._lazy_graph_module import _LazyGraphModule

from autograder.engine.wire.kinds import is_word
from passlab.fx import isolation
from passlab.fx.ops import ConvReLU2d
from passlab.judge import travel
from passlab.process.refusal import Refused

#: Fields of every module, and fields that are set up again for every GraphModule.
_TRACED = """_graph meta _tracer_cls _tracer_extras _replace_hooks _create_node_hooks _erase_node_hooks _deepcopy_hooks
    shape_env _code _lineno_map _prologue_start _in_spec _out_spec"""
_INNER = {*vars(nn.Module()), *_TRACED.split()}
#: Second references to parameters; `remake` sets them up again.
_DERIVED = {"_flat_weights", "_flat_weight_refs"}
_HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]


#: Modules that need several processes, and those that run operators which a graph may not call.
_BARRED = """SyncBatchNorm CTCLoss EmbeddingBag FractionalMaxPool2d FractionalMaxPool3d MaxUnpool1d MaxUnpool2d
    MaxUnpool3d"""


def _classes() -> dict[str, type]:
    """Return name → class: torch.nn without lazy modules and `_BARRED` ones, and passlab's."""
    classes = {
        f"torch.nn.{name}": getattr(nn, name)
        for name in nn.modules.__all__
        if not name.startswith("Lazy") and name not in _BARRED.split()
    }
    inner = nn.modules.linear.NonDynamicallyQuantizableLinear
    return classes | {
        f"torch.nn.modules.linear.{inner.__name__}": inner,
        "passlab.fx.ops.ConvReLU2d": ConvReLU2d,
    }


_OWN = {name: cls for name, cls in _classes().items() if isinstance(cls, type) and issubclass(cls, nn.Module)}
_NAMES = {cls: name for name, cls in _OWN.items()}
#: The classes above and those that exercises declare.
CLASSES = ChainMap(_OWN, travel.MODULES)


def class_name(module: nn.Module, where: str) -> str:
    """Return the name of the module's class. Raises Refused for a learner's class or one that torch generated."""
    cls = type(module)
    if name := _NAMES.get(cls) or travel.name_in(travel.MODULES, cls):
        return name
    if "parametriz" in getattr(cls, "__module__", "") or hasattr(module, "parametrizations"):
        raise Refused(f"{where} is parametrized. Undo that with torch.nn.utils.parametrize.remove_parametrizations.")
    raise Refused(
        f"{where} is a {cls.__name__}, a class of your own. A graph may only use modules of torch.nn and passlab. "
        f"Express what it computes as nodes of the graph."
    )


def refuse_hooks(module: nn.Module, where: str) -> None:
    """Raise Refused if the module has hooks: functions cannot travel."""
    state = vars(module)
    if any(state.get(name) for name in _HOOKS):
        raise Refused(f"{where} has a hook, which cannot travel with the graph. Remove it before you return the graph.")


def settings(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a module's `__dict__` that not every module has."""
    for name, value in vars(module).items():
        if name not in _INNER and name not in _DERIVED and value is not isolation.refuse:
            yield name, value


def may_be_set(cls: type, name: Any) -> bool:
    """Return whether `name` may be a setting of an instance of `cls`: it hides no method and no field of torch's."""
    if not is_word(name) or name.startswith("__") or name in _INNER or name in _DERIVED:
        return False
    return not any(name in vars(base) for base in cls.__mro__)


def hides_tensor(cls: type, value: Any) -> bool:
    """Return whether a setting of a layer is a tensor, which judges that look at its parameters and buffers overlook.

    A GraphModule may hold constants: its nodes read them.
    """
    return isinstance(value, Tensor) and not issubclass(cls, fx.GraphModule)


def blank(cls: type) -> nn.Module:
    """Return an empty instance of a class from `CLASSES`."""
    module: nn.Module = object.__new__(cls)
    nn.Module.__init__(module)
    return module


def remake(module: nn.Module) -> None:
    """Set up derived fields: recurrent layers keep a second list of their parameters."""
    if isinstance(module, nn.RNNBase):
        weights = [module._parameters.get(name) for name in vars(module).get("_flat_weights_names", ())]
        module.__dict__["_flat_weights"] = weights
        module.__dict__["_flat_weight_refs"] = [None if w is None else weakref.ref(w) for w in weights]


def part(root: nn.Module, path: str) -> str:
    """Return what `root` has at a path: "part" (a module, parameter, buffer or setting), "missing", or "other".

    "other" is anything else that Python would find there, such as a method, and that no graph may reach.
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
    """Return a GraphModule without a graph. It compiles its code at the first run, not when it is created."""
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
