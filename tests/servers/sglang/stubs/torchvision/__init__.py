"""Stands in for torchvision, whose builds do not fit every CPU build of torch. Serving text imports it and no more."""

from importlib import import_module

from dummies import answer_for

__version__ = "0.28.0"

answer_for(__name__)


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
