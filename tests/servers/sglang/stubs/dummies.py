"""Modules and classes that exist to be imported and are never used: for packages that text on a CPU does not need."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class DummyClass(type):
    """A class with any attribute: `InterpolationMode.BICUBIC` is a string that says so."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class DummyModule(ModuleType):
    """A module with any content: a capital letter gives a class, else a module, which may be used as a decorator."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        value = DummyClass(name, (), {}) if name[0].isupper() else import_module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args: object, **kwargs: object) -> object:
        return args[0] if len(args) == 1 and callable(args[0]) else None


class DummyFinder(MetaPathFinder, Loader):
    """Answers for every submodule of a package that is not there as a file."""

    def __init__(self, package: str) -> None:
        self.prefix = f"{package}."

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.startswith(self.prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return DummyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def answer_for(package: str) -> None:
    """From now on any import below `package` succeeds; real files of it come first."""
    sys.meta_path.append(DummyFinder(package))
