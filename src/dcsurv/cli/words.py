"""The library's parameters as options of the command line: the one place that knows both names."""

from __future__ import annotations

import shlex

from dcsurv.messages import ModelParameter, Parameter, Reference

# Options that are not called like the parameter.
_OPTIONS = {"event_values": "--event-value", "groups": "--group", "path": "the file"}


def option(reference: Reference) -> str:
    """Say a parameter as an option: ``--time``, ``--event-value 2``, ``--set n_nodes=15``, ``--model coxph``."""
    if isinstance(reference, ModelParameter):
        return f"--set {shlex.quote(f'{reference.name}={reference.value}')}"
    if not isinstance(reference, Parameter):
        from dcsurv.kinds import kind_in_file  # brings the models, which no help text needs

        kind = kind_in_file(reference.name)
        return f"--model {reference.name.lower() if kind is None else kind.name}"
    name = _OPTIONS.get(reference.name, f"--{reference.name.replace('_', '-')}")
    if reference.value is None:
        return name
    if isinstance(reference.value, dict):
        return " ".join(
            f"{name} {shlex.quote(f'{key}={one:g}')}" for key, own in reference.value.items() for one in own
        )
    values = reference.value if isinstance(reference.value, list | tuple) else [reference.value]
    return " ".join(f"{name} {shlex.quote(str(value))}" for value in values)
