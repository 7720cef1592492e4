"""Exchanges of mass between pairs of nodes: the last part of searches that end in few atoms.

Where extrema are Dirac measures or pairs, mirror descent gets there through neighbouring nodes
whose potentials hardly differ, and needs many steps to choose between them. Moving mass s from
node j to node i changes the energy by ``2 s (Z_i - Z_j) + s^2 (K_ii + K_jj - 2 K_ij)`` exactly,
and the potential by two columns of the kernel, so the best s is known and an exchange is cheap.
Where no small s helps, whole atoms are moved as long as that does, then pairs of atoms to nodes
nearby: an antipodal pair turns only as a whole.
"""

from __future__ import annotations

import numpy as np

LARGEST_NORM = 100.0  # of D: beyond it potentials on one scale leave the range of float64
MAX_EXCHANGES = 5000
ATOMS = 8  # the heaviest ones, which are tried elsewhere
NEIGHBOURS = 16  # nodes nearby that each of two atoms may move to
GAIN = 1e-13  # of the energy, for which an atom is moved
REFRESH = 200  # exchanges after which the energy is summed up anew


def exchange(points, D, masses, ratio, log_energy: float, eligible, sign: int, tolerance: float):
    """Exchange mass until no pair of nodes improves the energy much.

    Parameters
    ----------
    points : ndarray, shape (m, n)
    D : ndarray, shape (n, n)
        Symmetric.
    masses : ndarray, shape (m,)
    ratio : ndarray, shape (m,)
        Potential over energy.
    log_energy : float
    eligible : ndarray of bool, shape (m,)
        The nodes that may receive mass.
    sign : int
        1 to minimise, -1 to maximise.
    tolerance : float
        Of ``2 (E - min Z)/E`` over the eligible nodes (for a maximum ``2 (max Z - E)/E``).

    Returns
    -------
    masses : ndarray, shape (m,)
    count : int
        The number of exchanges.

    Examples
    --------
    >>> points = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> masses, ratio = np.array([0.5, 0.5]), np.ones(2)
    >>> exchange(points, np.diag([-1.0, -1.0]), masses, ratio, 0.0, ratio > 0, -1, 1e-9)[1]
    0
    """
    masses, potential, energy = masses.copy(), ratio.copy(), 1.0
    blocked = np.where(eligible, 0.0, np.inf)

    def column(node):
        return np.exp(points @ (D @ points[node]) - log_energy)

    own = np.exp(np.sum(points * (points @ D), axis=1) - log_energy)
    for count in range(MAX_EXCHANGES):
        pull = sign * potential
        best = int(np.argmin(pull + blocked))
        if 2 * (sign * energy - pull[best]) > tolerance * energy:
            worst = int(np.argmax(masses * (pull - pull[best])))
        else:
            worst, best = _jump(masses, pull, blocked, sign * own, lambda j: sign * column(j))
            if best < 0:
                nodes, change = _turn(points, D, masses, pull, eligible, sign, log_energy)
                if change is None:
                    return masses, count
                np.add.at(masses, nodes, change)
                masses[masses < 0] = 0.0  # round-off of what has left
                potential += np.stack([column(node) for node in nodes], axis=1) @ change
                energy = float(masses @ potential)
                continue
        to, away = column(best), column(worst)
        slope = pull[best] - pull[worst]
        curvature = sign * (to[best] + away[worst] - 2 * to[worst])
        moved = masses[worst]
        if slope < 0 and curvature > 0:
            moved = min(moved, -slope / curvature)
        masses[best] += moved
        masses[worst] -= moved
        potential += moved * (to - away)
        energy += sign * moved * (2 * slope + moved * curvature)
        if count % REFRESH == REFRESH - 1:
            energy = float(masses @ potential)
    return masses, MAX_EXCHANGES


def _jump(masses, pull, blocked, own, column) -> tuple[int, int]:
    """The atom and the node to which moving all of it lowers the energy most, or (j, -1).

    Dirac measures next to the best node are local extrema on the nodes: small parts of their
    mass may not move, all of it may.
    """
    found, lowest = (0, -1), -GAIN
    for atom in np.argsort(masses)[::-1][:ATOMS]:
        mass = masses[atom]
        if mass <= 1 / len(masses) ** 2:
            break
        change = 2 * mass * (pull - pull[atom]) + mass**2 * (own + own[atom] - 2 * column(atom))
        node = int(np.argmin(change + blocked))
        if change[node] < lowest:
            found, lowest = (int(atom), node), change[node]
    return found


def _turn(points, D, masses, pull, eligible, sign: int, log_energy: float):
    """The best move of the two heaviest atoms to nodes nearby: nodes and changes, or None."""
    first, second = np.argsort(masses)[::-1][:2]
    a, b = masses[first], masses[second]
    places = np.flatnonzero(eligible)
    i, j = (
        places[np.argsort(-points[places] @ points[atom], kind="stable")[:NEIGHBOURS]]
        for atom in (first, second)
    )

    def kernel(x, y):
        return sign * np.exp(points[x] @ D @ points[y].T - log_energy)

    def alone(nodes, atom, mass):  # both atoms are moved: this is the part of one
        own = np.array([kernel([node], [node])[0, 0] for node in [*nodes, atom]])
        square = own[:-1] + own[-1] - 2 * kernel(nodes, [atom])[:, 0]
        return 2 * mass * (pull[nodes] - pull[atom]) + mass**2 * square

    mixed = kernel(i, j) - kernel(i, [second]) - kernel([first], j) + kernel([first], [second])
    change = np.add.outer(alone(i, first, a), alone(j, second, b)) + 2 * a * b * mixed
    k, p = np.unravel_index(np.argmin(change), change.shape)
    if not change[k, p] < -GAIN:
        return None, None
    return np.array([i[k], j[p], first, second]), np.array([a, b, -a, -b])
