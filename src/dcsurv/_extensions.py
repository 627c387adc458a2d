"""Packages that add models or metrics of their own, found through entry points.

An extension names a module in its metadata, and that module registers what it brings when it is imported::

    [project.entry-points."dcsurv.extensions"]
    my-metric = "my_package.my_metric"
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

GROUP = "dcsurv.extensions"

_waiting: list[EntryPoint] | None = None


class ExtensionError(Exception):
    """What somebody else added failed."""


class ExtensionImportError(ExtensionError, ImportError):
    """An extension cannot be imported."""


def load_extensions() -> None:
    """Import the module of every installed extension, once.

    Called where a model or a metric is looked up, so that ``import dcsurv`` stays quick.

    Raises
    ------
    ExtensionImportError
        An extension cannot be imported, whatever it failed with.
    """
    global _waiting
    if _waiting is None:
        _waiting = list(entry_points(group=GROUP))
    while _waiting:
        entry = _waiting.pop(0)  # before the import, in which the extension may look something up itself
        try:
            import_module(entry.module)
        except (Exception, SystemExit) as error:
            _waiting.insert(0, entry)
            raise ExtensionImportError(
                f"{_named(entry)} could not be imported: module {entry.module!r} failed with "
                f"{type(error).__name__}: {str(error).rstrip('.')}. Repair or uninstall that package."
            ) from error


def where_from(module: str) -> str:
    """Say which extension a module belongs to; the module alone if it is of none."""
    for entry in entry_points(group=GROUP):
        if entry.module.partition(".")[0] == module.partition(".")[0]:
            return _named(entry)
    return f"the module {module!r}"


def _named(entry: EntryPoint) -> str:
    package = "an installed package" if entry.dist is None else f"the package {entry.dist.name!r}"
    return f"the extension {entry.name!r} of {package}"
