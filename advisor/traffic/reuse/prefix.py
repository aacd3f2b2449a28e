"""Prefix sharing: what an unlimited prefix cache would serve, in whole blocks (handbook 8)."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.traffic.figures import PrefixSharing
from advisor.traffic.statistics.interval import ratio_interval

Hashes = NDArray[np.uint64]
_HASH_BYTES = 8
_BISECTIONS = 60


def chain_hashes(
    tokens: NDArray[np.int32], block_size: int, *, key: bytes = b"", person: bytes = b""
) -> Hashes:
    """One 64-bit hash for every full block: of its tokens and of everything before it.

    Like the engine's chain of SHA-256 (handbook 8), with fewer bits: of a million blocks two
    collide with probability 3e-8. With a `key` nobody can try guesses who has not got it.
    """
    if block_size < 1:
        raise InvalidInput("block_size", f"{block_size} is not at least 1")
    held = np.ascontiguousarray(tokens, dtype=np.int32).tobytes()
    step = block_size * np.dtype(np.int32).itemsize
    chain = hashlib.blake2b(key=key, person=person, digest_size=_HASH_BYTES)
    found = bytearray()
    for start in range(0, len(held) - step + 1, step):
        chain.update(held[start : start + step])
        found += chain.digest()
    return np.frombuffer(bytes(found), dtype=np.uint64)


def affinity_hit_share(replicas: int, group: int, *, affine: bool) -> float:
    """Share of `group` requests with one prefix that find it cached (handbook 8, T8.4).

    Affine routing sends all of them to one replica, random routing spreads them, so that on every
    replica that is reached the first of them computes the prefix anew.
    """
    if replicas < 1 or group < 1:
        raise InvalidInput("replicas, group", "there is at least one replica and one request")
    reached = 1.0 if affine else replicas * (1 - (1 - 1 / replicas) ** group)
    return 1 - reached / group


def che_hit_share(rates: Sequence[float], capacity: float) -> float:
    """Hit share of an LRU cache of `capacity` items, requested independently at `rates`.

    Che's approximation (handbook 8, T8.2): an item stays for the time t with
    ``sum(1 - exp(-rate t)) = capacity``.
    """
    wanted = np.asarray(rates, dtype=np.float64)
    if len(wanted) == 0 or wanted.min() <= 0 or capacity < 0:
        raise InvalidInput("rates", "rates are positive and the capacity is not negative")
    if capacity >= len(wanted):
        return 1.0

    def missing(stay: float) -> float:
        return float(capacity + np.expm1(-wanted * stay).sum())

    low, high = 0.0, 1.0 / float(wanted.min())
    while missing(high) > 0:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if missing(middle) > 0 else (low, middle)
    stay = (low + high) / 2
    return float(-(wanted * np.expm1(-wanted * stay)).sum() / wanted.sum())


def share_of(hits: Sequence[int], lengths: Sequence[int], block_size: int) -> PrefixSharing | None:
    """Hits over prompt tokens for some of the replayed requests; None without a prompt token."""
    if not sum(lengths):
        return None
    value, low, high = ratio_interval(hits, lengths)
    return PrefixSharing(
        block_size=block_size,
        hit_share=Estimate(
            value=value,
            low=low,
            high=high,
            source=Source.SIMULATED,
            basis=(
                f"replay of {len(lengths)} prompts through an unlimited cache of {block_size}-token"
                " blocks, bootstrap by request"
            ),
        ),
        hit_tokens=sum(hits),
        prompt_tokens=sum(lengths),
    )
