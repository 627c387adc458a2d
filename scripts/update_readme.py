"""Fill README.md's tables from the committed results; `--check` only says whether they are up to date."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def quality() -> str:
    """Return the five-split table, as `make quality` wrote it."""
    lines = (ROOT / "benchmarks" / "quality.md").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def bench() -> str:
    """Return the speed ratios, as `make bench` wrote them."""
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    rows = [
        ("C-td, 20,000 patients, 200 nodes", "pycox", results["ctd_vs_pycox"]),
        ("cumulative-dynamic AUC, 20,000 patients, 50 times", "scikit-survival", results["cdauc_vs_sksurv"]),
        ("1,000 bootstraps of four metrics, 1,775 patients", "loop over both", results["bootstrap_vs_loop"]),
    ]
    rows += [
        (f"training step of the decoder, {shape}", "torch.nn.LSTM", ratio)
        for shape, ratio in results["decoder_vs_nn_lstm"].items()
    ]
    lines = ["| what | against | times faster |", "|---|---|---|"]
    return "\n".join(lines + [f"| {what} | {peer} | {ratio:.1f} |" for what, peer, ratio in rows])


def filled(text: str) -> str:
    """Return the text with every table between its markers made anew."""
    for name, table in (("quality", quality()), ("bench", bench())):
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(pattern, lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text, flags=re.S)
        if count != 1:
            raise SystemExit(f"README.md needs exactly one pair of markers for {name!r}; found {count}.")
    return text


def main() -> None:
    text = README.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        raise SystemExit(
            0 if filled(text) == text else "README.md is behind the results: run scripts/update_readme.py."
        )
    README.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
