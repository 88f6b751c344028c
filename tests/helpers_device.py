"""A device that is not the CPU as far as its tensors are concerned, for mistakes that only show on a GPU.

Inside `pretend_device()`, tensors that are put on `DEVICE` say so, and have their numbers in a CPU tensor
that only this module sees. Every operation is carried out on the CPU, after a check that a GPU could do it.
`docs/agents.md` says what this finds and what it cannot find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("lazy:0")
"""A name that torch knows and nothing else uses; no such device has to exist."""
TRANSFERS = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
INDEXED = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default}
"""A GPU accepts indices and masks that are still on the CPU."""
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"}
"""What the CPU has to wait for: its result, or its shape, depends on the numbers."""


class MixedDevices(RuntimeError):
    """An operation on tensors of several devices, or with the random numbers of another device."""


class OnDevice(Tensor):
    """A tensor on `DEVICE`."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OnDevice:
        numbers = numbers.resolve_conj().resolve_neg()  # what was put off would be forgotten
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=DEVICE,
            requires_grad=False,
        )
        made.numbers = numbers
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"OnDevice({self.numbers!r})"

    def tolist(self) -> Any:
        """As on a GPU: by way of the CPU. (Torch itself refuses subclasses.)"""
        return self.cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        """Whoever saves a model asks which of its tensors share memory."""
        return self.numbers.untyped_storage()

    def data_ptr(self) -> int:
        """As `untyped_storage`."""
        return self.numbers.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return PretendDevice().__torch_dispatch__(func, types, args, kwargs)  # outside of `pretend_device`


class PretendDevice(TorchDispatchMode):
    """Carries out every operation, and counts those that the CPU has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == DEVICE.type
        if OnDevice not in types and not to_device:
            return func(*args, **kwargs)
        if _consists_of_others(func):  # in inference mode such operations arrive here
            with self:
                return func.decompose(*args, **kwargs)
        tensors = list(_tensors((args, tuple(kwargs.values()))))
        here = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
        on_device = bool(here) if target is None else to_device
        if func is torch.ops.aten.copy_.default:
            on_device = isinstance(args[0], OnDevice)
        self._check(func, tensors, here, on_device, kwargs.get("generator"))
        name = func._schema.name.split("::")[1]
        if here and (not on_device or name in WAITS):
            self.waits[name] += 1
        if to_device:
            kwargs["device"] = torch.device("cpu")
        found = func(*_each(args, _numbers), **{key: _each(value, _numbers) for key, value in kwargs.items()})
        return _each(found, partial(_returned, {id(t.numbers): t for t in here})) if on_device else found

    def _check(self, func: Any, tensors: Any, here: Any, on_device: bool, generator: Any) -> None:
        if generator is not None and on_device:
            raise MixedDevices(f"{func}: a generator of the CPU draws numbers of another device")
        elsewhere = [tensor for tensor in tensors if not isinstance(tensor, OnDevice) and tensor.dim() > 0]
        if here and elsewhere and func not in TRANSFERS | INDEXED:
            raise MixedDevices(
                f"{func}: tensors of {DEVICE} and of the CPU: {[tuple(t.shape) for t in elsewhere]}"
            )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    return type(value)([_each(item, change) for item in value]) if isinstance(value, list | tuple) else value


def _numbers(tensor: Tensor) -> Tensor:
    return tensor.numbers if isinstance(tensor, OnDevice) else tensor


def _returned(arguments: Mapping[int, OnDevice], tensor: Tensor) -> OnDevice:
    """A result on the device; if an operation returns one of its own arguments, the same object."""
    if id(tensor) in arguments:
        return arguments[id(tensor)]
    with torch.inference_mode(tensor.is_inference()):  # views of weights are not
        return OnDevice(tensor)


@cache
def _consists_of_others(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@contextmanager
def pretend_device() -> Iterator[PretendDevice]:
    """While it is open, `DEVICE` can be used."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # or `torch.tensor(..., device=...)` would bypass the mode
    torch.__future__.set_swap_module_params_on_conversion(True)  # tied weights stay tied in `module.to`
    try:
        with PretendDevice() as device:
            yield device
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
        torch.__future__.set_swap_module_params_on_conversion(False)
