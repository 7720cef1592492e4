"""Attention as a map of measures, and how regular it is.

Operators on measures in R^d, layers as compositions of Markov kernels, and bounds on their
Wasserstein contraction, each with its hypotheses: only valid forms certify.

Examples
--------
>>> import meanfield as mf
>>> E = mf.regularity.Box(1.0, 2)
>>> bound = mf.regularity.exponential_attention_bound(mf.regularity.ScaledDotProduct(), E, "l1")
>>> round(bound.value, 1), bound.certifies
(66.2, True)
"""

from meanfield.regularity.adversarial import AdversarialConstant, adversarial_constant
from meanfield.regularity.bounds import (
    attention_bound,
    attention_query_bound,
    cross_attention_bound,
    key_bound,
    query_bound,
)
from meanfield.regularity.certificates import Contraction, certify, certify_bound
from meanfield.regularity.composition_bounds import (
    attention_lower_bound,
    depth_bound,
    lookup_bound,
    multi_head_bound,
    product_bound,
    projection_bound,
)
from meanfield.regularity.constants import (
    PotentialConstants,
    given_constants,
    potential_constants,
)
from meanfield.regularity.domains import Ball, Box
from meanfield.regularity.exponential_bounds import (
    exponential_attention_bound,
    exponential_key_bound,
    exponential_query_bound,
)
from meanfield.regularity.gaussian_bounds import (
    gaussian_attention_bound,
    gaussian_lower_bound,
    gaussian_mean_bound,
    gaussian_softmatch_bound,
)
from meanfield.regularity.head_constants import (
    RegularityTable,
    head_constants,
    regularity_table,
)
from meanfield.regularity.heads import TransformerHead
from meanfield.regularity.inversion import FixedPoint, attention_block, infinite_depth, invert
from meanfield.regularity.kernels import Deterministic, Finite, MarkovKernel, Mixture
from meanfield.regularity.layers import (
    AttentionLayer,
    FeedForward,
    MultiHeadLayer,
    attention,
    layer_of,
    multi_head_attention,
)
from meanfield.regularity.lengths import compare_texts, smallest_bound, token_effects
from meanfield.regularity.local import LocalConstant, local_constant
from meanfield.regularity.operators import (
    attention_kernel,
    boltzmann_gibbs,
    causal_mask,
    cross_attention,
    lookup,
    project_to_mean,
    self_attention,
    softmatch,
)
from meanfield.regularity.potentials import (
    Bilinear,
    Custom,
    Gaussian,
    Potential,
    ScaledDotProduct,
)
from meanfield.regularity.records import Bound, Hypothesis

__all__ = [
    "AdversarialConstant",
    "AttentionLayer",
    "Ball",
    "Bilinear",
    "Bound",
    "Box",
    "Contraction",
    "Custom",
    "Deterministic",
    "FeedForward",
    "Finite",
    "FixedPoint",
    "Gaussian",
    "Hypothesis",
    "LocalConstant",
    "MarkovKernel",
    "Mixture",
    "MultiHeadLayer",
    "Potential",
    "PotentialConstants",
    "RegularityTable",
    "ScaledDotProduct",
    "TransformerHead",
    "adversarial_constant",
    "attention",
    "attention_block",
    "attention_bound",
    "attention_kernel",
    "attention_lower_bound",
    "attention_query_bound",
    "boltzmann_gibbs",
    "causal_mask",
    "certify",
    "certify_bound",
    "compare_texts",
    "cross_attention",
    "cross_attention_bound",
    "depth_bound",
    "exponential_attention_bound",
    "exponential_key_bound",
    "exponential_query_bound",
    "gaussian_attention_bound",
    "gaussian_lower_bound",
    "gaussian_mean_bound",
    "gaussian_softmatch_bound",
    "given_constants",
    "head_constants",
    "infinite_depth",
    "invert",
    "key_bound",
    "layer_of",
    "local_constant",
    "lookup",
    "lookup_bound",
    "multi_head_attention",
    "multi_head_bound",
    "potential_constants",
    "product_bound",
    "project_to_mean",
    "projection_bound",
    "query_bound",
    "regularity_table",
    "self_attention",
    "smallest_bound",
    "softmatch",
    "token_effects",
]
