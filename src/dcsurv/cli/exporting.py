"""``dcsurv export``: a model for other programs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.shell import Shell
from dcsurv.cohort import ModelCard
from dcsurv.messages import plural


@command
def export(
    model: o.ModelFile,
    *,
    output: Annotated[Path, o.written_to("File to write (.onnx).")],
    shell: Shell,
) -> None:
    """Write a model as an ONNX file, which other programs compute: preprocessing, curves, bands and follow-up.

    Inputs are the features by name (numbers; levels as text), the times, and the level of the band, if there is one.
    Needs the extra: `pip install 'dcsurv[onnx]'`.
    """
    from dcsurv.arithmetic import to_onnx
    from dcsurv.persistence import load

    o.check_output(output, model, suffixes=(".onnx",))
    fitted = load(model)
    card = ModelCard.of(fitted)
    about = {
        "digest": hashlib.sha256(model.read_bytes()).hexdigest(),
        "horizons": [horizon.to_dict() for horizon in card.horizons],
    }
    with shell.steps() as step:
        step("writing the operations")
        size = len(to_onnx(fitted, output, about=about))
    features = plural(fitted.n_features_in_, "feature")
    shell.say(f"{output}: {fitted.display_name} of {features}, {size / 1e6:.2f} MB.")
    shell.result({"output": str(output), "bytes": size, **about})
