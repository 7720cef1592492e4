"""Writes small random model directories in the Hugging Face layout, for the tests."""

import json
from pathlib import Path

import numpy as np

WORDS = ["[PAD]", "[CLS]", "the", "and", "of", "cat", "sat", "##s", "mat", "dog", "ran", "far"]


def tensors_of(family, rng, d=8, layers=2, inner=12, positions=20):
    """Random tensors by name."""

    def normal(*shape):
        return rng.normal(size=shape).astype("float32")

    tensors = {}

    def affine(name, rows, columns, transposed=False):
        shape = (columns, rows) if transposed else (rows, columns)
        tensors[f"{name}.weight"] = normal(*shape) / np.float32(np.sqrt(columns))
        tensors[f"{name}.bias"] = 0.3 * normal(rows)

    def norm(name):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + 0.2 * normal(d), 0.2 * normal(d)

    if family == "bert":
        at = "bert.embeddings"
        tensors[f"{at}.word_embeddings.weight"] = normal(len(WORDS), d)
        tensors[f"{at}.position_embeddings.weight"] = normal(positions, d)
        tensors[f"{at}.token_type_embeddings.weight"] = normal(2, d)
        tensors["bert.embeddings.position_ids"] = np.arange(positions)[None]
        norm(f"{at}.LayerNorm")
        for k in range(layers):
            at = f"bert.encoder.layer.{k}"
            for part in ("query", "key", "value"):
                affine(f"{at}.attention.self.{part}", d, d)
            affine(f"{at}.attention.output.dense", d, d)
            norm(f"{at}.attention.output.LayerNorm")
            affine(f"{at}.intermediate.dense", inner, d)
            affine(f"{at}.output.dense", d, inner)
            norm(f"{at}.output.LayerNorm")
        return tensors
    at = "transformer"
    tensors[f"{at}.wte.weight"] = normal(len(WORDS), d)
    tensors[f"{at}.wpe.weight"] = normal(positions, d)
    norm(f"{at}.ln_f")
    for k in range(layers):
        at = f"transformer.h.{k}"
        affine(f"{at}.attn.c_attn", 3 * d, d, True)
        affine(f"{at}.attn.c_proj", d, d, True)
        affine(f"{at}.mlp.c_fc", inner, d, True)
        affine(f"{at}.mlp.c_proj", d, inner, True)
        norm(f"{at}.ln_1")
        norm(f"{at}.ln_2")
    return tensors


def config_of(family, d=8, layers=2, heads=2, inner=12, positions=20):
    """What config.json says of it."""
    if family == "bert":
        return {
            "model_type": "bert",
            "vocab_size": len(WORDS),
            "hidden_size": d,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "max_position_embeddings": positions,
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
            "hidden_act": "gelu",
        }
    return {
        "model_type": "gpt2",
        "vocab_size": len(WORDS),
        "n_embd": d,
        "n_layer": layers,
        "n_head": heads,
        "n_inner": inner,
        "n_positions": positions,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def write_model(folder, family="bert", seed=0, change=None, shards=1, **config):
    """Write a model; ``change`` may edit the dict of tensors, ``config`` its entries."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(family, np.random.default_rng(seed))
    if change is not None:
        change(tensors)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    (folder / "config.json").write_text(json.dumps(config_of(family) | config))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    names, where = list(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name] for name in names[shard::shards]}, folder / file)
        where |= dict.fromkeys(names[shard::shards], file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder
