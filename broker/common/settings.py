"""The options of a broker process.

  >>> BrokerSettings(data_dir=Path("/data")).listen
  '127.0.0.1:7650'

Policies given here are the lowest level: those of a namespace and a topic override them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledgerfold.broker.common.outgoing import BYTES_MAX, STREAMS_MAX
from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.settings import StoreSettings
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.records_pb2 import BacklogQuota, CompactionStrategy, Emulation

# Space for an entry's bytes other than values. Source: Pulsar's
# Commands.MESSAGE_SIZE_FRAME_PADDING.
_MARGIN_BYTES = 10 * 1024
DEFAULT_LISTEN = "127.0.0.1:7650"
# Pulsar's activeConsumerFailoverDelayTimeMillis.
FAILOVER_DELAY_MS = 1000
# Pulsar's maxUnackedMessagesPerConsumer and maxUnackedMessagesPerSubscription.
UNACKED_PER_CONSUMER_MAX = 50_000
UNACKED_PER_SUBSCRIPTION_MAX = 200_000
# The engines of a worker that the broker starts; "local" is another name of "auto".
ENGINES = {"auto": "auto", "local": "auto", "spark": "spark", "inline": "inline"}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The options. Sizes in bytes, times in ms. Paths become absolute."""

    data_dir: Path
    # Topic archives that a start imports, if their topics do not exist.
    imports: Sequence[Path] = ()
    listen: str = DEFAULT_LISTEN
    # 0 = never automatically.
    compaction_threshold_bytes: int = 0
    # -1 = no limit. (0, 0), Pulsar's default: delete raw data once every cursor has passed them.
    retention_ms: int = 0
    retention_bytes: int = 0
    # 0 = never: unacknowledged messages stay.
    message_ttl_ms: int = 0
    retain_null_key: bool = False
    # The quotas of topics whose levels set none. None: no limit.
    backlog_size_quota: BacklogQuota | None = None
    backlog_age_quota: BacklogQuota | None = None
    # Whether shared subscriptions hold delayed messages back.
    delays_delivery: bool = True
    # The pause before a newly active consumer of a Failover subscription is served. None: Pulsar's
    # default; with a manual clock none, because only a move of the clock would end it.
    failover_delay_ms: int | None = None
    # The numbers of unacknowledged messages at which shared subscriptions pause; 0: no limit.
    unacked_per_consumer_max: int = UNACKED_PER_CONSUMER_MAX
    unacked_per_subscription_max: int = UNACKED_PER_SUBSCRIPTION_MAX
    # Whether Key_Shared subscriptions split keys by consistent hashing, else by halves.
    hashes_consistently: bool = True
    # Whether messages of Pulsar's clients are deduplicated; None: those that a client sends again
    # on another connection.
    deduplicates: bool | None = None
    # Whether publishing to a topic, or subscribing to it, creates it.
    creates_topics: bool = True
    compaction_strategy: CompactionStrategy = field(
        default_factory=lambda: CompactionStrategy(name=DEFAULT)
    )
    # The compatibility strategy for new schemas; whether producers without a schema are refused on
    # a topic with one; whether clients may add schemas.
    schema_compatibility: str = "BACKWARD"
    schema_validation_enforced: bool = False
    allow_auto_update_schema: bool = True
    # The user-defined strategies that may be loaded, in addition to those of installed packages.
    allowed_strategies: AllowedStrategies = field(default_factory=AllowedStrategies)
    # Empty: the profile `documented` (broker/policies/profiles.py).
    emulation: Emulation = field(default_factory=Emulation)
    # A Kafka broker's settings by their Kafka names: they apply to Kafka topics.
    kafka_config: Mapping[str, str] = field(default_factory=dict)
    compaction_monitor_interval_ms: int = 60_000
    retention_check_interval_ms: int = 120_000
    quota_check_interval_ms: int = 60_000
    compaction_queue_max: int = 100
    # A run rewrites a segment of a compacted ledger when more than this part of it is dead. 0: no
    # segment has dead messages, so none is served to clients that do not support them.
    segment_garbage_max: float = 0.3
    # Pulsar's maxMessageSize. Applies to batches, too; never above ENTRY_BYTES_MAX.
    message_bytes_max: int = 5 * 1024 * 1024
    # The start time of a manual clock (broker/common/clock.py). None: the machine's clock.
    test_clock_start_ms: int | None = None
    # Whether clients may reset the broker. A broker with a manual clock always allows it.
    allow_reset: bool = False
    # Whether clients may make the broker fail by rules (broker/faults).
    allow_faults: bool = False
    # One of ENGINES: start and supervise a worker; "off"; or the address of a remote worker.
    compactor: str = "auto"
    spark_master: str = "local[2]"
    # The nice value of a local worker, 0 to 19 (19: lowest priority).
    compactor_nice: int = 0
    # The number of processors that a local worker may use. None: all.
    compactor_cores: int | None = None
    # "module:Factory": executes plans in this process, instead of a worker.
    compaction_service: str | None = None
    # For user-defined strategies in a local worker: the limits of an answer and of a task.
    strategy_timeout_ms: int = 60_000
    strategy_memory_bytes: int = 1024 * 1024 * 1024
    # Limits over all streams: their number, and the bytes read and not yet sent.
    streams_max: int = STREAMS_MAX
    unsent_bytes_max: int = BYTES_MAX
    # The limit of requests a second of each address; 0: none.
    requests_per_second_max: int = 0
    # The HTTP address of the metrics: "host:port". None: not served.
    metrics_listen: str | None = None
    # The HTTP address of the admin REST API: "host:port". None: not served.
    admin_listen: str | None = None
    # The HTTP address of the page: "host:port". None: not served. Whether it may change anything,
    # and the names under which it, the REST API and metrics are reached, besides addresses and
    # `localhost`.
    ui_listen: str | None = None
    ui_writes: bool = False
    ui_names: Sequence[str] = ()
    # The address of Pulsar's binary protocol, and the one that its clients use, if it is another:
    # "host:port". None: not served.
    pulsar_listen: str | None = None
    pulsar_advertise: str | None = None
    # Further addresses, by the names of the listeners that clients request. Without
    # `pulsar_advertise`, clients that name no listener get the first one.
    pulsar_listeners: Mapping[str, str] = field(default_factory=dict)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    ready_file: Path | None = None
    log_level: str = "INFO"
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        # The compactor refuses relative paths, and its working directory may differ.
        object.__setattr__(self, "data_dir", absolute_path(self.data_dir))
        if self.ready_file is not None:
            object.__setattr__(self, "ready_file", absolute_path(self.ready_file))

    @property
    def failover_pause_ms(self) -> int:
        if self.failover_delay_ms is not None:
            return self.failover_delay_ms
        return FAILOVER_DELAY_MS if self.test_clock_start_ms is None else 0

    @property
    def entry_bytes_max(self) -> int:
        """The size limit of a stamped entry."""
        return min(self.message_bytes_max + _MARGIN_BYTES, ENTRY_BYTES_MAX)
