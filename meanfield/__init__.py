"""meanfield: the mean-field equation of self-attention on the unit sphere.

Densities on S^1 and S^2 evolve under ``d_t mu + div(mu v[mu]) = 0`` with the attention velocity
``v(x) = P_x int exp(x.Dy) V y dmu(y) / int exp(x.Dy) dmu(y)``; results are xarray datasets.

Examples
--------
>>> import meanfield as mf
>>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
>>> run = mf.evolve(mf.circle(64), model, mf.von_mises_fisher([1, 1], 2.0), t_end=0.5)
>>> round(float(run.energy[-1]), 2)
2.11
"""

from meanfield import errors, regularity
from meanfield.dynamics.characteristics import CharacteristicEvolution, evolve_characteristics
from meanfield.dynamics.evolution import Evolution, UnresolvedWarning, evolve
from meanfield.dynamics.particle_clusters import find_clusters
from meanfield.dynamics.particle_evolution import ParticleEvolution
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import evolve_particles, transformer
from meanfield.dynamics.verification import verify
from meanfield.equilibria.exact import exact_minimizer
from meanfield.equilibria.extremizers import extremizers, four_point_angle
from meanfield.equilibria.extremum import Extremum
from meanfield.equilibria.mirror_descent import kullback_leibler, maximize, minimize
from meanfield.equilibria.perturbation import perturbed_minimizer
from meanfield.equilibria.predictions import Prediction, predict
from meanfield.equilibria.stability import Stability, stability
from meanfield.equilibria.variations import (
    first_variation,
    second_variation,
    stationarity_residual,
)
from meanfield.measures import Measure
from meanfield.model.attention import SelfAttention
from meanfield.model.densities import from_points, mixture, uniform, von_mises_fisher
from meanfield.model.heads import MultiHead
from meanfield.model.interaction import Interaction
from meanfield.results import (
    open_run,
    read_mesh,
    read_model,
    read_points,
    record_evolution,
    rerun,
)
from meanfield.sphere.icosphere import icosphere
from meanfield.sphere.meshes import Mesh, circle
from meanfield.sphere.quadrature import cell_averages
from meanfield.sphere.spaces import Space, lebedev, product_sphere
from meanfield.transport.geodesic import Geodesic
from meanfield.transport.metric_speed import MaximalSlope, maximal_slope, metric_speed
from meanfield.transport.mobility import mobility_distance
from meanfield.transport.wasserstein import wasserstein

__version__ = "0.1.0"

__all__ = [
    "CharacteristicEvolution",
    "Evolution",
    "Extremum",
    "Geodesic",
    "Interaction",
    "MaximalSlope",
    "Measure",
    "Mesh",
    "MultiHead",
    "ParticleEvolution",
    "Prediction",
    "SelfAttention",
    "Space",
    "Stability",
    "UnresolvedWarning",
    "cell_averages",
    "circle",
    "errors",
    "evolve",
    "evolve_characteristics",
    "evolve_particles",
    "exact_minimizer",
    "extremizers",
    "find_clusters",
    "first_variation",
    "four_point_angle",
    "from_points",
    "icosphere",
    "kullback_leibler",
    "lebedev",
    "maximal_slope",
    "maximize",
    "metric_speed",
    "minimize",
    "mixture",
    "mobility_distance",
    "open_run",
    "perturbed_minimizer",
    "predict",
    "product_sphere",
    "random_points",
    "read_mesh",
    "read_model",
    "read_points",
    "record_evolution",
    "regularity",
    "rerun",
    "second_variation",
    "stability",
    "stationarity_residual",
    "transformer",
    "uniform",
    "verify",
    "von_mises_fisher",
    "wasserstein",
]
