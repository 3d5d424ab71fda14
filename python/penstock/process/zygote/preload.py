"""Importing what ranks would import first. What is not installed is left out; what breaks, breaks the zygote."""

from __future__ import annotations

import importlib
import time


class Unfit(Exception):
    """The zygote may not be used, for a reason that a person understands."""


def preload(names: list[str]) -> tuple[dict[str, float], list[str]]:
    """Import them in order: seconds each took, and the names that are not installed."""
    loaded: dict[str, float] = {}
    absent: list[str] = []
    for name in names:
        begun = time.perf_counter()
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as problem:
            # Only when it is this one that is missing, or what it lies in; a missing part of it is a broken installation.
            if problem.name is None or not (name + ".").startswith(problem.name + "."):
                raise Unfit(f"`import {name}` failed: {problem}") from problem
            absent.append(name)
        except BaseException as problem:
            raise Unfit(f"`import {name}` failed: {type(problem).__name__}: {problem}") from problem
        else:
            loaded[name] = round(time.perf_counter() - begun, 3)
    return loaded, absent
