"""Tests routing to partitions: hashes as in Pulsar's other clients, rotation for the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.client.core.partitioned_producer import config_of_each, router_for
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.options import HashingScheme, PartitionsRoutingMode
from ledgerfold.broker.client.messages.routing import (
    HASHES,
    RoundRobinRouter,
    SinglePartitionRouter,
    java_string_hash,
    murmur3_32,
)
from ledgerfold.storage.errors import InvalidRequest

ROUND_ROBIN = PartitionsRoutingMode.RoundRobinDistribution
SINGLE = PartitionsRoutingMode.UseSinglePartition


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From the tests of Pulsar's Java and C++ clients, which keep both consistent.
        ("k1", 2110152746),
        ("k2", 1479966664),
        ("key1", 462881061),
        ("key2", 1936800180),
        ("key01", 39696932),
        ("key02", 751761803),
        ("", 0),
    ],
)
def test_murmur_hashes_equal_pulsars(key: str, expected: int) -> None:
    assert murmur3_32(key) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # The first overflows; the second is negative in Java (and both are in Pulsar's tests).
        ("keykeykeykeykey1", 434058482),
        ("keykeykey2", 42978643),
        ("", 0),
        ("a", 97),
        # "😀".hashCode() is of two UTF-16 units: 31 * 0xD83D + 0xDE00.
        ("😀", 31 * 0xD83D + 0xDE00),
    ],
)
def test_java_hashes_equal_javas(key: str, expected: int) -> None:
    assert java_string_hash(key) == expected


@given(st.text(max_size=20), st.sampled_from(list(HashingScheme)), st.integers(1, 7))
def test_a_key_has_one_partition_in_every_mode(
    key: str, scheme: HashingScheme, partitions: int
) -> None:
    hash_key = HASHES[scheme]
    assert 0 <= hash_key(key) < 2**31
    expected = hash_key(key) % partitions
    routers = (
        RoundRobinRouter(hash_key, first=5),
        RoundRobinRouter(hash_key, first=5, turn_ms=10),
        SinglePartitionRouter(hash_key, only=0),
    )
    assert [router.choose(key, partitions) for router in routers] == [expected] * 3


def test_a_key_that_is_not_text_has_a_partition() -> None:
    """A file name, say, that is no UTF-8."""
    key = b"caf\xe9".decode(errors="surrogateescape")
    assert murmur3_32(key) != murmur3_32("caf")
    assert java_string_hash(key) >= 0


def test_single_messages_rotate_one_by_one() -> None:
    router = RoundRobinRouter(murmur3_32, first=1)
    assert [router.choose(None, 3) for _ in range(4)] == [1, 2, 0, 1]


def test_batched_messages_rotate_by_time() -> None:
    """So that a batch fills: each partition has all of them for a while."""
    clock = iter([1000, 1050, 1099, 1100, 1200, 1300])
    router = RoundRobinRouter(murmur3_32, first=1, turn_ms=100, clock_ms=lambda: next(clock))
    assert [router.choose(None, 3) for _ in range(6)] == [2, 2, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ProducerConfig("t", message_routing_mode=ROUND_ROBIN), [2, 0, 1]),
        # Ten delays of 10 ms are a turn; the clock shows 150 ms, in the second one.
        (ProducerConfig("t", message_routing_mode=ROUND_ROBIN, batching_enabled=True), [0, 0, 0]),
        (ProducerConfig("t", message_routing_mode=SINGLE, batching_enabled=True), [2, 2, 2]),
    ],
)
def test_a_producer_applies_its_routing_mode(config: ProducerConfig, expected: list[int]) -> None:
    router = router_for(config, 3, lambda: 150, chance=lambda partitions: partitions - 1)
    assert [router.choose(None, 3) for _ in range(3)] == expected


def test_a_producer_applies_its_hashing_scheme() -> None:
    """These two differ on "key1" (1 and 2 of 4)."""
    for scheme, expected in ((HashingScheme.Murmur3_32Hash, 1), (HashingScheme.JavaStringHash, 2)):
        config = ProducerConfig("t", hashing_scheme=scheme)
        assert router_for(config, 4, lambda: 0).choose("key1", 4) == expected


@pytest.mark.parametrize(
    ("pending", "across", "expected"), [(1000, 5000, 1000), (1000, 60, 20), (0, 60, 0), (9, 1, 1)]
)
def test_the_partitions_share_the_limit_of_pending_messages(
    pending: int, across: int, expected: int
) -> None:
    """As in Pulsar; all have one name."""
    config = ProducerConfig(
        "t", max_pending_messages=pending, max_pending_messages_across_partitions=across
    )
    each = config_of_each(config, 3)
    assert each.max_pending_messages == expected
    assert each.producer_name
    assert config_of_each(ProducerConfig("t", "p"), 3).producer_name == "p"
    with pytest.raises(InvalidRequest):
        ProducerConfig("t", max_pending_messages_across_partitions=0)
