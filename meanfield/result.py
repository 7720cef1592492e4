"""What every result can do: become a dataset, a file, a picture."""

from __future__ import annotations

from html import escape


class Result:
    """Base of the results of computations; they are frozen dataclasses of NumPy arrays."""

    def to_dataset(self):
        """The result as an xarray dataset."""
        raise NotImplementedError

    def save(self, path, overwrite: bool = False) -> None:
        """Write the dataset as NetCDF, completely or not at all.

        Parameters
        ----------
        path : path-like
        overwrite : bool
            Replace an existing file.

        Raises
        ------
        FileError
            If the file exists and ``overwrite`` is False, or cannot be written.
        """
        from meanfield.results.dataset import save_dataset

        save_dataset(self.to_dataset(), path, overwrite=overwrite)

    def plot(self):
        """Draw the result.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from meanfield.plots import plot_dataset

        return plot_dataset(self.to_dataset())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
