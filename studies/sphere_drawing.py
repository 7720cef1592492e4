"""Drawing on S^1 and S^2 for the studies: circles, and globes seen through."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import LineCollection

VIEW = np.array([0.62, 0.55, 0.56]) / np.linalg.norm([0.62, 0.55, 0.56])
GREY = "0.75"
BEHIND = 0.25  # opacity of what lies on the far side


def camera(points: np.ndarray) -> np.ndarray:
    """Points of S^2 as seen: right, up and towards the viewer; shape (..., 3) kept."""
    right = np.cross([0.0, 0.0, 1.0], VIEW)
    right /= np.linalg.norm(right)
    return points @ np.stack([right, np.cross(VIEW, right), VIEW], axis=1)


def frame(ax, title: str) -> None:
    """Equal axes without ticks, and a title."""
    ax.set_title(title, fontsize=10)
    ax.set_aspect("equal")
    ax.set_xlim(-1.22, 1.22)
    ax.set_ylim(-1.22, 1.22)
    ax.axis("off")


def draw_circle(ax, title: str) -> None:
    """S^1."""
    turn = np.linspace(0, 2 * np.pi, 361)
    ax.plot(np.cos(turn), np.sin(turn), color=GREY, lw=1, zorder=0)
    for axis, name in ((np.array([1.0, 0.0]), "$e_1$"), (np.array([0.0, 1.0]), "$e_2$")):
        ax.text(*(1.13 * axis), name, ha="center", va="center", fontsize=9)
    frame(ax, title)


def draw_globe(ax, title: str) -> None:
    """S^2 as a globe with meridians and parallels, the far ones lighter."""
    turn = np.linspace(0, 2 * np.pi, 361)
    ax.fill(np.cos(turn), np.sin(turn), color="0.97", zorder=-1)
    ax.plot(np.cos(turn), np.sin(turn), color=GREY, lw=1, zorder=0)
    lines = [
        np.stack([np.cos(a) * np.sin(turn), np.sin(a) * np.sin(turn), np.cos(turn)], axis=1)
        for a in np.arange(0, np.pi, np.pi / 4)
    ]
    lines += [
        np.stack([r * np.cos(turn), r * np.sin(turn), np.full_like(turn, z)], axis=1)
        for r, z in ((1.0, 0.0), (np.cos(np.pi / 4),) * 2, (np.cos(np.pi / 4), -np.sin(np.pi / 4)))
    ]
    draw_paths(ax, np.stack(lines), color=GREY, width=0.5)
    for axis, name in zip(np.eye(3), ("$e_1$", "$e_2$", "$e_3$"), strict=True):
        x, y, _ = camera(1.16 * axis)
        ax.text(x, y, name, ha="center", va="center", fontsize=9)
    frame(ax, title)


def draw_paths(ax, paths: np.ndarray, color, width: float = 0.9) -> None:
    """Curves on S^2, shape (paths, points, 3); the parts on the far side are lighter."""
    seen = camera(paths)
    segments = np.stack([seen[:, :-1, :2], seen[:, 1:, :2]], axis=2).reshape(-1, 2, 2)
    near = ((seen[:, :-1, 2] + seen[:, 1:, 2]) >= 0).ravel()
    for side, alpha in ((~near, BEHIND), (near, 0.9)):
        ax.add_collection(LineCollection(segments[side], colors=color, lw=width, alpha=alpha))


def draw_points(ax, points: np.ndarray, color, size: float = 14.0, marker: str = "o") -> None:
    """Points of S^2, shape (N, 3); those on the far side are hollow."""
    seen = camera(points)
    near = seen[:, 2] >= 0
    ax.scatter(*seen[~near, :2].T, s=size, marker=marker, facecolors="none", edgecolors=color,
               linewidths=0.7, alpha=0.6, zorder=3)  # fmt: skip
    ax.scatter(*seen[near, :2].T, s=size, marker=marker, color=color, linewidths=0, zorder=4)
