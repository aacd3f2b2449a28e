"""How functions are compiled that run millions of times, and the addresses they work on.

Passing arrays from function to function copies their descriptions and counts references; the
simulator has some twenty and calls often. So compiled code gets addresses: one word each.
"""

import zlib
from collections.abc import Callable, Iterable
from types import CodeType, ModuleType
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {
    "forceinline": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "no_rewrites": True,
}


def inner(function: _Function) -> _Function:
    """Compiled into whoever calls it; not callable from Python."""
    return cast("_Function", njit(**_OPTIONS)(function))


def kept(function: _Function) -> _Function:
    """Compiled once, kept on disk, and free to run beside other threads."""
    return cast("_Function", njit(cache=True, nogil=True, error_model="numpy")(function))


def fingerprint(modules: Iterable[ModuleType]) -> int:
    """Changes with the code or a constant of any compiled function of the modules.

    numba notices a change of the file of a kept function only. So a kept function carries a
    fingerprint of everything it calls: a change in any of them compiles anew.
    """
    parts = [str(sorted(_OPTIONS.items()))]
    for module in modules:
        for name, value in sorted(vars(module).items()):
            if hasattr(value, "py_func"):
                parts.append(_text(value.py_func.__code__))
            elif isinstance(value, int):
                parts.append(f"{name} {value}")
    return zlib.crc32("\n".join(parts).encode())


def _text(code: CodeType) -> str:
    constants = [c for c in code.co_consts if isinstance(c, int | float | tuple)]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {constants}"


def _address(typing_context: Any, array: Any) -> Any:  # noqa: ARG001  numba passes it
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    pointer: Any = types.CPointer
    return pointer(array.dtype)(array), generate


address: Any = cast("Any", intrinsic)(_address)
"""Where the cells of a contiguous array begin; indexed as if flat, without checks."""
