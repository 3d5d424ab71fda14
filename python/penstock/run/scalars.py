"""What a program reports and logs: one number each. Anything else is refused by the call that gave it, and not when the step is over."""

from typing import Any, SupportsFloat, SupportsIndex

from penstock.errors import UsageError

#: Kinds of numpy's types that are no real numbers: texts, bytes, objects, complex numbers, times.
_NO_NUMBERS = frozenset("USOcmM")


def scalar(name: str, value: Any) -> Any:
    """The value as it is. Nothing waits for a device: only its type and size are looked at."""
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, SupportsFloat | SupportsIndex):
        raise _refused(name, f"{type(value).__name__}")
    numel = getattr(value, "numel", None)
    count = numel() if callable(numel) else getattr(value, "size", 1)
    if count != 1:
        raise _refused(name, f"{type(value).__name__} of {count} elements")
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "f") in _NO_NUMBERS or getattr(dtype, "is_complex", False):
        raise _refused(name, f"{type(value).__name__} of {dtype}")
    return value


def _refused(name: str, what: str) -> UsageError:
    hint = "give a number, or a tensor with one element, such as loss.mean()"
    return UsageError(f"{name} is a {what}, not a number", hint=hint)
