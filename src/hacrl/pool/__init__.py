"""A pool: verified responses that separately running trainers share through a disk, Redis or a bucket."""

from hacrl.pool.client import PoolClient
from hacrl.pool.entry import Entry, PoolKey, pool_key, sign
from hacrl.pool.places import Place, SharedPoolError, open_place
from hacrl.pool.reader import Reader

POOL = "pool"
"""The source of all responses from the pool: one more peer, whoever they come from."""

__all__ = [
    "POOL",
    "Entry",
    "Place",
    "PoolClient",
    "PoolKey",
    "Reader",
    "SharedPoolError",
    "open_place",
    "pool_key",
    "sign",
]
