"""Variables of datasets without a mesh: positions of points, and series of numbers."""

from __future__ import annotations

import numpy as np
import xarray as xr


def series(values, dimensions: tuple[str, ...], long_name: str, **others) -> xr.Variable:
    """A nondimensional variable; without a fill value, so that NaN and integers stay.

    Examples
    --------
    >>> series([1.0, 2.0], ("time",), "energy").attrs
    {'long_name': 'energy', 'units': '1'}
    """
    attributes = {"long_name": long_name, "units": "1", **others}
    return xr.Variable(dimensions, values, attributes, {"_FillValue": None})


def time_axis(times) -> xr.Variable:
    """The coordinate of nondimensional time.

    Examples
    --------
    >>> time_axis([0.0, 1.0]).attrs["axis"]
    'T'
    """
    attributes = {"long_name": "nondimensional time", "units": "1", "axis": "T"}
    return xr.Variable("time", times, attributes, {"_FillValue": None})


def positions(points: np.ndarray, dimensions: tuple[str, ...], of: str) -> dict[str, xr.Variable]:
    """``x``, ``y``, ``z`` of points in R^2 or R^3; beyond, ``position`` with components.

    Parameters
    ----------
    points : ndarray, shape (..., n)
    dimensions : tuple of str
        Of all axes but the last.
    of : str
        What the points are, for the long names.

    Examples
    --------
    >>> sorted(positions(np.eye(3), ("point",), "node"))
    ['x', 'y', 'z']
    """
    n = points.shape[-1]
    if n > 3:
        return {"position": series(points, (*dimensions, "component"), f"position of the {of}")}
    return {
        name: series(points[..., axis], dimensions, f"{name} of the {of}")
        for axis, name in enumerate("xyz"[:n])
    }


def stored_points(dataset: xr.Dataset) -> np.ndarray:
    """The points that `positions` stored, with the components last.

    Examples
    --------
    >>> stored_points(xr.Dataset(positions(np.eye(3), ("point",), "node"))).shape
    (3, 3)
    """
    if "position" in dataset:
        return dataset["position"].values
    return np.stack([dataset[name].values for name in "xyz" if name in dataset], axis=-1)
