"""Names of modules: what `__all__` lists and what `dir()` shows."""

import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import greatcircle

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(greatcircle.__path__, "greatcircle.")
    if not module.name.endswith("__main__")
)
PUBLIC = sorted(
    name for name in greatcircle.__all__ if isinstance(getattr(greatcircle, name), ModuleType)
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_lists_its_names(name):
    module = import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for listed in module.__all__:
        assert hasattr(module, listed), f"{name}.{listed} does not exist"
        assert not listed.startswith("_") or listed == "__version__"


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_shows_the_listed_names_only(name):
    module = getattr(greatcircle, name)
    assert dir(module) == sorted(module.__all__)
    assert dir(greatcircle) == sorted(greatcircle.__all__)
