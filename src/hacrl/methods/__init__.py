"""Ways of learning alone and together. Each method is one module of this package, which registers itself."""

import importlib
import pkgutil

from hacrl.methods.base import Method, View

__all__ = ["Method", "View"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
