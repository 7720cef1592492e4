"""The members of a sweep in one dataset with an axis for everything that varied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from meanfield.results.provenance import attributes
from meanfield.results.ugrid import TOPOLOGY, open_netcdf
from meanfield.results.variables import series

MISSING, DONE, FAILED = -1, 0, 1
KEPT = ("_FillValue", "coordinates")  # of the encoding of what is stored once
MAX_BYTES = 2**31  # a variable that would be larger is left out, its members have it


@dataclass(frozen=True)
class Row:
    """What a sweep keeps of one member.

    Attributes
    ----------
    state : xarray.Dataset
        Series in time whole, fields that change in time at their end.
    computed : frozenset of str
        What is a result of this member, and never stored once for all.
    """

    state: xr.Dataset
    computed: frozenset


def read_row(path) -> Row:
    """The row of a member from its file.

    Raises
    ------
    FileError
        If it cannot be read.
    """
    with open_netcdf(path) as stored:
        return make_row(stored)


def make_row(dataset: xr.Dataset) -> Row:
    """The row of a member.

    Examples
    --------
    >>> sorted(make_row(xr.Dataset({"mass": (("time", "cell"), [[1.0], [2.0]])})).computed)
    ['mass']
    """
    computed = {
        name
        for name, variable in dataset.data_vars.items()
        if "time" in variable.dims or (not variable.dims and "cf_role" not in variable.attrs)
    }
    if "time" not in dataset.dims:
        return Row(dataset.load(), frozenset(computed))
    last, keep = dataset.isel(time=-1), {}
    for name, variable in dataset.variables.items():
        moving = "time" in variable.dims and variable.dims != ("time",)
        keep[name] = (last if moving else dataset)[name].variable.load()
    state = xr.Dataset(keep, attrs=dataset.attrs).set_coords(list(dataset.coords))
    return Row(state, frozenset(computed))


def sweep_dataset(
    axes: dict[str, tuple], rows: dict[tuple, Row], errors: dict[tuple, str], parameters: dict
) -> xr.Dataset:
    """Combine the results of the members of a sweep.

    Series in time are kept where all members have the same times; of fields that change in time
    the last state is kept. What is the same in all members, such as a mesh, is stored once.

    Parameters
    ----------
    axes : dict of str to tuple
        The values of every axis.
    rows : dict of tuple of int to Row
        The members that are complete, by their place.
    errors : dict of tuple of int to str
        Why the others failed.
    parameters : dict
        What rebuilds the sweep.

    Returns
    -------
    xarray.Dataset
        With the coordinates ``axes``; ``status``: 0 complete, 1 failed, -1 not computed; and
        ``error``.

    Examples
    --------
    >>> rows = {(k,): make_row(xr.Dataset({"energy": ("time", [1.0, k])})) for k in range(2)}
    >>> sweep_dataset({"l": (3.0, 4.0)}, rows, {}, {})["energy"].values.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    axes = {name: np.array(values) for name, values in axes.items()}
    shape = tuple(len(values) for values in axes.values())
    dataset = xr.Dataset(coords={name: (name, values) for name, values in axes.items()})
    dataset["status"], dataset["error"] = _status(tuple(axes), shape, rows, errors)
    if rows:
        computed = frozenset().union(*(row.computed for row in rows.values()))
        states = {place: row.state for place, row in rows.items()}
        _combine(dataset, tuple(axes), shape, states, computed)
    dataset.attrs |= attributes("A sweep of meanfield", parameters)
    return dataset


def _status(dimensions, shape, rows, errors) -> tuple[xr.Variable, xr.Variable]:
    status, error = np.full(shape, MISSING, dtype="i4"), np.full(shape, "", dtype=object)
    for place in rows:
        status[place] = DONE
    for place, words in errors.items():
        status[place], error[place] = FAILED, words
    meanings = {"flag_values": np.array([MISSING, DONE, FAILED], dtype="i4")}
    meanings["flag_meanings"] = "not_computed complete failed"
    described = series(status, dimensions, "what became of the member", **meanings)
    return described, xr.Variable(dimensions, error, {"long_name": "why the member failed"})


def _combine(dataset: xr.Dataset, dimensions, shape, rows: dict, computed: frozenset) -> None:
    """Add the variables of the members."""
    results = list(rows.values())
    left_out = []
    same_times = len({tuple(row["time"].values) if "time" in row else () for row in results}) == 1
    for name in dict.fromkeys(name for row in results for name in row.variables):
        there = {place: row[name].variable for place, row in rows.items() if name in row.variables}
        if not same_times:
            there = {
                place: value.isel(time=-1) if "time" in value.dims else value
                for place, value in there.items()
            }
        first = next(iter(there.values()))
        clash = name in dimensions or set(first.dims) & set(dimensions)
        once = name not in computed and len(there) == len(rows)
        if not clash and once and all(map(first.identical, there.values())):
            dataset[name] = first
            dataset[name].encoding = {key: first.encoding.get(key) for key in KEPT}
        elif not clash and (stacked := _stack(dimensions, shape, there)) is not None:
            dataset[name] = stacked
        else:
            left_out.append(str(name))
    on_places = {name for row in results for name in row.coords} & set(dataset.variables)
    for name in on_places - set(dataset.coords):
        dataset.coords[name] = dataset[name]
    if any(str(name).startswith(f"{TOPOLOGY}_") for name in left_out):
        del dataset[TOPOLOGY]  # the members have meshes of their own
    if left_out:
        dataset.attrs["left_out"] = ", ".join(left_out)


def _stack(dimensions, shape, there: dict) -> xr.Variable | None:
    """The values of one variable over the grid, NaN where there are none; None if they differ
    in shape, are no numbers, or are too many."""
    first = next(iter(there.values()))
    if not all(value.dims == first.dims and value.shape == first.shape for value in there.values()):
        return None
    numbers = first.dtype.kind in "fiu"
    if not numbers or 8 * np.prod(shape) * max(first.size, 1) > MAX_BYTES:
        return None
    values = np.full(shape + first.shape, np.nan)
    for place, value in there.items():
        values[place] = value.values
    return xr.Variable((*dimensions, *first.dims), values, first.attrs, {"_FillValue": None})
