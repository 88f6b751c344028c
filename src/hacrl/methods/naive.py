"""Naive sharing, the paper's baseline: one joint group, nothing corrected."""

from __future__ import annotations

from typing import Literal

from hacrl.methods.hacpo import JointGroup
from hacrl.recipe.method import register


@register
class Naive(JointGroup):
    """Every response, whoever drew it, under GSPO with the plain mean and spread of all rewards."""

    name: Literal["naive"] = "naive"
    """`naive`."""
