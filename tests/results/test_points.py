"""Points from text files."""

import numpy as np
import pytest

from meanfield.errors import FileError, PointsError
from meanfield.results.points import read_points, to_degrees

X = [[0.6, 0.8, 0.0], [0.0, 0.0, -1.0]]


def read(tmp_path, text, **options):
    path = tmp_path / "points.csv"
    path.write_text(text, **options)
    return read_points(path)


@pytest.mark.parametrize(
    "text",
    [
        "x,y,z\n3,4,0\n0,0,-2\n",
        "token,x,y,z\nthe,3,4,0\nand,0,0,-2\n",
        'x,token,y,z\n3,",",4,0\n0,#,0,-2\n',
        " X , Y , Z \n3,4,0\n0,0,-2\n",
        "z,y,x\n0,4,3\n-2,0,0\n",
        "lon,lat\n53.13010235415598,0\n17,-90\n",
        "latitude,longitude\n0,53.13010235415598\n-90,0\n",
        "3,4,0\n0,0,-2\n",
        "3 4 0\n0\t0 -2\n",
        "# made by hand\n3,4,0\n# more\n0,0,-2\n",
        "# made by hand\nx,y,z\n3,4,0\n0,0,-2",
        "\ufeffx,y,z\r\n3,4,0\r\n0,0,-2\r\n",
        "x,y,z\n3,4,0\n\n0,0,-2\n\n",
    ],
)
def test_forms_of_the_file(tmp_path, text):
    points = read(tmp_path, text, encoding="utf-8")
    assert np.allclose(points, X, rtol=0, atol=1e-15)
    assert np.allclose(np.linalg.norm(points, axis=1), 1, rtol=0, atol=1e-15)


def test_points_of_the_circle_and_of_higher_spheres(tmp_path):
    assert read(tmp_path, "x,y\n3,4\n").tolist() == [[0.6, 0.8]]
    assert read(tmp_path, "1,1,1,1\n").tolist() == [[0.5, 0.5, 0.5, 0.5]]


def test_the_tokens(token_points):
    from pathlib import Path

    path = Path(__file__).parents[2] / "data" / "tokens" / "tokens_head5.csv"
    expected, _ = token_points(5)
    points = read_points(path)
    assert points.shape == (2000, 3)
    assert np.allclose(points, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y,z\n1,0,0\n0,0,0\n", "row 2 is the zero vector"),
        ("1,0,0\n0,0,0\n", "row 2 is the zero vector"),
        ("x,y,z\n1,0,0\n0,nan,1\n", "row 2 contains NaN or infinity"),
        ("x,y,z\n1,0,inf\n", "row 1 contains NaN or infinity"),
        ("x,y,z\n1,0,0\n0,one,1\n", "could not convert string 'one' to float64 at row 2"),
        ("x,y,z\n1,0,0\n0,1\n", "row 2 with 2 columns"),
        ("1,0,0\n0,1\n", "number of columns changed from 3 to 2 at row 2"),
        ("a,b,c\n1,0,0\n", "has the columns a, b, c: points need x,y,z or x,y or lon,lat"),
        ("token,x\nthe,1\n", "has the columns token, x"),
        ("lon,lat\n0,91\n", r"row 1 has the latitude 91, not in \[-90, 90\]"),
        ("1\n2\n", "has one column"),
        ("x,y,z\n", "holds no points"),
        ("", "is empty"),
        ("\n\n", "is empty"),
    ],
)
def test_bad_files(tmp_path, text, message):
    with pytest.raises(PointsError, match=message) as caught:
        read(tmp_path, text)
    assert "points.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        read_points(tmp_path / "points.csv")
    with pytest.raises(FileError, match="Is a directory"):
        read_points(tmp_path)
    (tmp_path / "picture.csv").write_bytes(bytes(range(256)))
    with pytest.raises(PointsError, match="not a text file"):
        read_points(tmp_path / "picture.csv")


def test_degrees_there_and_back():
    longitude, latitude = to_degrees(np.array([[-1.0, 0.0, 0.0], [0.0, 0.6, 0.8]]))
    assert longitude.tolist() == [180.0, 90.0]
    assert np.allclose(latitude, [0.0, 53.13010235415598], rtol=0, atol=1e-13)
