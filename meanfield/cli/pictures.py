"""Pictures and movies of the command: checked before a run, made when its result is safe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from meanfield.cli.messages import say
from meanfield.results.files import check_output, reason


def check_picture(path: Path | None, overwrite: bool) -> None:
    """Refuse a picture that could not be written.

    Raises
    ------
    FileError
    """
    if path is not None:
        from meanfield.plots.meshes import picture_format

        picture_format(path)
        check_output(path, overwrite)


def check_movie(path: Path | None, overwrite: bool) -> None:
    """Refuse a movie that could not be written.

    Raises
    ------
    FileError
    """
    if path is not None:
        from meanfield.plots.movies import movie_format

        movie_format(path)
        check_output(path, overwrite)


def draw(dataset, path: Path | None, overwrite: bool) -> None:
    """Make the picture of a result that is already safe: a failure is only a warning."""

    def make() -> None:
        from meanfield.plots import plot_dataset
        from meanfield.plots.meshes import save_figure

        save_figure(plot_dataset(dataset), path, overwrite)

    _try("picture", path, make)


def film(dataset, path: Path | None, overwrite: bool) -> None:
    """Make the movie of a result that is already safe: a failure is only a warning."""

    def make() -> None:
        from meanfield.plots.movies import save_movie

        save_movie(dataset, path, overwrite)

    _try("movie", path, make)


def _try(what: str, path: Path | None, make: Callable[[], None]) -> None:
    if path is None:
        return
    try:
        make()
    except Exception as error:
        say("warning", f"the {what} {path} could not be made: {reason(error)}")
    else:
        print(f"  {what}: {path}")
