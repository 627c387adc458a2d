"""Recalibrated models as version 0.1 kept them, in files of ensembles."""

from __future__ import annotations

from dcsurv.calibration.recalibrated import FittedOn, Recalibrated
from dcsurv.kinds import kind_in_file
from dcsurv.persistence import Arrays, Header, from_saved


def recalibrated_in_version_01(header: Header, arrays: Arrays) -> Recalibrated | None:
    """Read a recalibrated model as version 0.1 kept it; None if the file of an ensemble holds none.

    It had no name for them: a recalibrated single model was an ensemble with one member, which no ensemble is made of,
    and the maps of a recalibrated ensemble were appended to its own, one sequence each.
    """
    maps, own_maps = header["map"].get("maps", []), header["parameters"]["maps"]
    single = len(header["members"]) == 1
    own, extra = ([], maps) if single else (maps[: len(own_maps)], maps[len(own_maps) :])
    if not extra and not single:
        return None
    card = dict(header.get("card") or {})
    entries = card.pop("recalibrations", [])
    inside: Header = {**header, "map": {**header["map"], "maps": own}}
    if card:
        inside["card"] = {**card, "recalibrations": []}
    if single:
        inside, arrays = _only_member(inside, arrays)
    model = from_saved(inside, arrays)
    for state, entry in zip(extra, entries or [{}] * len(extra), strict=True):
        wrapped = Recalibrated(model, tuple(one["kind"] for one in state["maps"]))
        data = entry.get("data", {})
        fitted_on = FittedOn(
            int(data.get("patients", 0)), int(data.get("events", 0)), data.get("file"), data.get("sha256"),
            entry.get("created", ""),
        )  # fmt: skip
        wrapped._restore(state, fitted_on, None)
        model = wrapped
    return model


def _only_member(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Return the file of the one member of an ensemble, with the preprocessing that the ensemble had for it."""
    described = header["members"][0]
    kind = kind_in_file(described["kind"])
    if kind is None or not kind.is_member:
        raise ValueError(f"a member of the unknown kind {described['kind']!r}.")
    parameters = {**described["parameters"], "preprocess": header["parameters"]["preprocess"]}
    prefix = "member0."
    own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    return {**header, **described, "parameters": parameters}, own
