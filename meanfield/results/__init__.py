"""Results as datasets and files. The functions here import xarray only when they are called."""

from __future__ import annotations


def open_run(path, partial: bool = False):
    """Open a saved result: the object that was saved, with its arrays.

    Parameters
    ----------
    path : path-like
        A NetCDF file of this package.
    partial : bool
        Also take a file whose run was stopped: the frames that it has.

    Returns
    -------
    Evolution or ParticleEvolution

    Raises
    ------
    FileError
        If the file is missing, unreadable, incomplete, damaged, or of another kind.

    Examples
    --------
    >>> import tempfile, meanfield as mf
    >>> run = mf.evolve(mf.circle(8), mf.SelfAttention([1.0, 2.0]), mf.uniform(), 0.1, save=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run.save(f"{folder}/run.nc")
    ...     bool((open_run(f"{folder}/run.nc").masses == run.masses).all())
    True
    """
    from meanfield.results.dataset import open_run, stored_verb, written_frames
    from meanfield.results.particle_dataset import VERBS, particle_evolution
    from meanfield.results.ugrid import open_netcdf

    with open_netcdf(path) as dataset:
        if stored_verb(dataset) in VERBS:
            return particle_evolution(written_frames(dataset, path, partial).load())
    return open_run(path, partial)


def read_mesh(path):
    """Read a mesh from a UGRID NetCDF file: see `meanfield.results.ugrid.read_mesh`."""
    from meanfield.results.ugrid import read_mesh

    return read_mesh(path)


def read_model(path):
    """Read a transformer from its files: see `meanfield.results.models.read_model`."""
    from meanfield.results.models import read_model

    return read_model(path)


def read_points(path):
    """Read points from a CSV file: see `meanfield.results.points.read_points`."""
    from meanfield.results.points import read_points

    return read_points(path)


def record_evolution(path, mesh, model, density, t_end, *more, **options):
    """Run `evolve` into a file that survives: `meanfield.results.recorded_runs.record_evolution`.

    Examples
    --------
    >>> import tempfile, meanfield as mf
    >>> setting = mf.circle(8), mf.SelfAttention([1.0, 2.0]), mf.uniform(), 0.1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record_evolution(f"{folder}/run.nc", *setting, save=3, resume=True).complete
    True
    """
    from meanfield.results.recorded_runs import record_evolution

    return record_evolution(path, mesh, model, density, t_end, *more, **options)


def rerun(path):
    """Compute a saved run again and compare: see `meanfield.results.rerunning.rerun`."""
    from meanfield.results.rerunning import rerun

    return rerun(path)
