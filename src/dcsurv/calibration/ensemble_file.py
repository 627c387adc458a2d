"""What the file of an ensemble holds beside its maps: members and families as plain data and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from dcsurv.calibration.families import Family, name_of
from dcsurv.calibration.maps import MapSequence, make_maps, map_from_state
from dcsurv.kinds import kind_of, kinds
from dcsurv.models import SurvivalEstimator
from dcsurv.models.saved_model import Training
from dcsurv.persistence import Arrays, Header, ModelFileError, known_kind
from dcsurv.plain import Count, Share, declared


class _Described(msgspec.Struct):
    """What a file says of an unfitted member."""

    kind: str
    parameters: dict[str, Any]


class _Member(_Described):
    training: Training


class _Family(msgspec.Struct):
    name: str
    members: Count
    folds: Annotated[int, msgspec.Meta(ge=2)]
    weight: Share
    map: dict[str, Any]


class _Training(Training):
    remarks: list[str] = msgspec.field(default_factory=list)  # files before there were any have none


class EnsembleState(msgspec.Struct):
    """What the header of a file has to say of an ensemble, or of one of its refits."""

    members: Annotated[list[_Member], msgspec.Meta(min_length=1)]
    map: dict[str, Any]
    training: _Training
    families: list[_Family] | None = None
    backing: dict[str, Any] | None = None
    refits: list[dict[str, Any]] = []


def members_state(members: Sequence[SurvivalEstimator]) -> tuple[list[Header], Arrays]:
    """Return fitted members as plain data and arrays."""
    described: list[Header] = []
    arrays: Arrays = {}
    for k, member in enumerate(members):
        header, own = member.checked_state()
        described.append({**describe(member), **header, "training": member.training_summary_})
        arrays |= {f"member{k}.{name}": array for name, array in own.items()}
    return described, arrays


def members_from(described: Sequence[Header], arrays: Arrays) -> list[SurvivalEstimator]:
    """Rebuild the fitted members of a file."""
    members = []
    for k, one in enumerate(described):
        member = from_description(one)
        prefix = f"member{k}."
        own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
        member.preprocessor_, member.follow_up_ = None, None
        member.training_summary_ = one["training"]
        member.set_state(one, own)
        members.append(member)
    if len({member.n_columns for member in members}) > 1:
        raise ValueError("the members of the ensemble compute with different numbers of columns.")
    return members


def families_state(families: Sequence[Family]) -> list[Header]:
    """Return what is known of each family beside its members."""
    return [
        {
            "name": own.name,
            "members": len(own.members),
            "folds": own.n_folds,
            "weight": own.weight,
            "map": own.map.get_state(),
        }
        for own in families
    ]


def families_from(header: Header, members: list[SurvivalEstimator]) -> list[Family]:
    """Return the families of a file; a file before there were families has one."""
    described = header.get("families")
    if described is None:
        whole = {"members": len(members), "folds": len(members), "weight": 1.0, "map": make_maps(()).get_state()}
        described = [{"name": name_of(members[0]), **whole}]
    families, left = [], list(members)
    for one in described:
        own, left = left[: one["members"]], left[one["members"] :]
        families.append(Family(one["name"], own, one["folds"], float(one["weight"]), sequence(one["map"])))
    sizes = all(own.n_folds > 1 and len(own.members) % own.n_folds == 0 for own in families)
    counted = all(own.weight >= 0 and (own.weight == 0) == (not own.members) for own in families)
    if left or not sizes or not counted or not np.isclose(sum(own.weight for own in families), 1.0):
        raise ValueError("the families of the ensemble are not those of its members.")
    return families


def sequence(state: Header) -> MapSequence:
    """Rebuild the maps of an ensemble or of a family."""
    restored = map_from_state(state)
    if not isinstance(restored, MapSequence):
        raise ValueError("the map of an ensemble must be a sequence.")
    return restored


def check_member(what: str, model: Any) -> None:
    """Refuse what cannot be a member."""
    kind = kind_of(model)
    if not isinstance(model, SurvivalEstimator) or (kind is not None and not kind.is_member):
        raise ValueError(
            f"{what} a {type(model).__name__}, but one of {', '.join(possible())} is expected. "
            "Curves of other models can be recalibrated with HorizonMap and RankPreservingMap."
        )


def described(companion: str | SurvivalEstimator) -> str | Header:
    """Return a companion, which may be a name, as plain data."""
    return companion if isinstance(companion, str) else describe(companion)


def restored(companion: str | Header) -> str | SurvivalEstimator:
    """Rebuild a companion."""
    return companion if isinstance(companion, str) else from_description(companion)


def describe(model: SurvivalEstimator) -> Header:
    """Return kind and parameters of a member as plain data."""
    kind = kind_of(model)
    if kind is None or not kind.is_member:
        raise ModelFileError(f"an ensemble of {type(model).__name__} cannot be saved; possible are {possible()}.")
    return {"kind": type(model).__name__, "parameters": {**model.plain_parameters(), "preprocess": None}}


def from_description(saved: Header) -> SurvivalEstimator:
    """Rebuild an unfitted member from its kind and parameters."""
    found = declared(saved, _Described)
    kind = known_kind("a member", found.kind)
    if not kind.is_member:
        raise ValueError(f"a member is a {found.kind}, of which no ensemble can be made.")
    model: SurvivalEstimator = kind.model.from_parameters(found.parameters)
    return model


def possible() -> list[str]:
    """Return the names of the models that can be members."""
    return [kind.model.__name__ for kind in kinds() if kind.is_member]
