"""Modules that are imported when something of them is first used."""

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module that takes long to import, where many commands do without it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value
