"""Tables of other packages than pandas, of which none is needed here."""

from __future__ import annotations

from typing import Any

import pandas as pd


def as_pandas(table: Any) -> Any:
    """Return a DataFrame or Series of polars, or a table of pyarrow, as a pandas one; anything else as it is.

    A polars Series of structs, as ``frame.to_struct()`` makes, becomes a DataFrame with its fields as columns.
    """
    if type(table).__name__ == "LazyFrame":
        raise ValueError("a LazyFrame arrived, of which no row has been computed. Pass what its collect() returns.")
    if isinstance(table, pd.DataFrame | pd.Series) or not hasattr(table, "to_pandas"):
        return table
    if str(getattr(table, "dtype", "")).startswith("Struct"):
        table = table.struct.unnest()
    return table.to_pandas()
