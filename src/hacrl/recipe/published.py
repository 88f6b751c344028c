"""Published ways of sharing besides HACPO, with their published defaults (`docs/methods.md`)."""

from __future__ import annotations

from typing import Literal

from hacrl.recipe.method_section import MethodSettings, Share
from hacrl.recipe.settings import Above0, AtLeast0


class FtisSettings(MethodSettings):
    """Truncated importance sampling of peers' responses."""

    name: Literal["ftis"]
    """`ftis`."""
    truncation: Above0 = 2.0
    """Largest importance weight of a token of a peer's response."""
    kl_limit: AtLeast0 = 50.0
    """Peers' responses with a negative advantage are dropped from this divergence on, in nats."""


class OneUpdatePerMiniBatch(MethodSettings):
    """Methods whose shared part is in the same updates as the agent's own responses."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as alone."""
        return mini_batches


class XgrpoSettings(OneUpdatePerMiniBatch):
    """Own responses, compared with everybody's rewards."""

    name: Literal["xgrpo"]
    """`xgrpo`."""


class SgtSettings(OneUpdatePerMiniBatch):
    """Success-gated transfer."""

    name: Literal["sgt"]
    """`sgt`."""
    weight: AtLeast0 = 0.1
    """Weight of the log-likelihood of peers' verified responses beside the loss of own responses."""


class LuffySettings(OneUpdatePerMiniBatch):
    """Policy shaping on peers' verified responses."""

    name: Literal["luffy"]
    """`luffy`."""
    shaping: Above0 = 0.1
    """Gamma in p / (p + gamma), which takes the place of the ratio of peers' tokens."""


class SwarmSettings(MethodSettings):
    """Peers' groups treated as own ones."""

    name: Literal["swarm"]
    """`swarm`."""
    external: Share = 1.0
    """Peers' groups per own group."""
    peer_clip_low: Share = 0.2
    """Clip of the ratio of each token of peers' responses below 1."""
    peer_clip_high: AtLeast0 = 0.28
    """Clip of the ratio of each token of peers' responses above 1."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """At most as many groups of peers as own ones, however many peers there are."""
        return mini_batches * (2 if peers else 1)


class GraftSettings(MethodSettings):
    """Peers' groups in the place of own ones that failed."""

    name: Literal["graft"]
    """`graft`."""
    floor: Share = 0.8
    """Peers' responses count if their ratio is above this."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """A group is replaced once at most, however many peers there are."""
        return mini_batches * (2 if peers else 1)


class OneWaySettings(MethodSettings):
    """The strongest agent teaches all others."""

    name: Literal["sft_strongest", "opd"]
    """`sft_strongest` (its verified responses are imitated) or `opd` (it judges own responses by token)."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many on the teacher's as other methods make on all peers' responses, even if few are heard."""
        return mini_batches * (agents if peers else 1)
