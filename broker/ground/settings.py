"""What a broker process is told at start.

    >>> BrokerSettings(data_dir=Path("/data")).listen
    '127.0.0.1:7650'

Policies given here are the lowest level: a namespace's and a topic's own stand above them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledgerfold.broker.ground.outgoing import BYTES_MAX, STREAMS_MAX
from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.settings import StoreSettings
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.records_pb2 import CompactionStrategy, Emulation

# For what an entry holds beside values. Source: Pulsar's Commands.MESSAGE_SIZE_FRAME_PADDING.
_MARGIN_BYTES = 10 * 1024
DEFAULT_LISTEN = "127.0.0.1:7650"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Sizes in bytes, times in ms. Paths become absolute."""

    data_dir: Path
    listen: str = DEFAULT_LISTEN
    # 0 = never by itself.
    compaction_threshold_bytes: int = 0
    # -1 = no limit. (0, 0), Pulsar's default: raw data go once every cursor has passed them.
    retention_ms: int = 0
    retention_bytes: int = 0
    # 0 = never: what nobody acknowledges stays.
    message_ttl_ms: int = 0
    retain_null_key: bool = False
    compaction_strategy: CompactionStrategy = field(
        default_factory=lambda: CompactionStrategy(name=DEFAULT)
    )
    # Which of one's own may be loaded, beside those of installed packages.
    allowed_strategies: AllowedStrategies = field(default_factory=AllowedStrategies)
    # Nothing set: the profile `documented` (broker/policies/profiles.py).
    emulation: Emulation = field(default_factory=Emulation)
    # A Kafka broker's settings, by their names there: what holds for Kafka topics.
    kafka_config: Mapping[str, str] = field(default_factory=dict)
    compaction_monitor_interval_ms: int = 60_000
    retention_check_interval_ms: int = 120_000
    compaction_queue_max: int = 100
    # Pulsar's maxMessageSize. Of entries of several messages, too; never above ENTRY_BYTES_MAX.
    message_bytes_max: int = 5 * 1024 * 1024
    # Where a clock stands that is moved by hand (broker/ground/clock.py). None: the machine's
    # clock.
    test_clock_start_ms: int | None = None
    # "local": start and supervise a worker; "off"; or the address of one that runs elsewhere.
    compactor: str = "local"
    spark_master: str = "local[2]"
    # "module:Factory": carries out plans in this process, instead of a worker.
    compaction_service: str | None = None
    # Of strategies of one's own, in a worker of ours: for an answer, and of a task.
    strategy_timeout_ms: int = 60_000
    strategy_memory_bytes: int = 1024 * 1024 * 1024
    # Of all streams together: how many, and how many bytes of what was read and is not sent.
    streams_max: int = STREAMS_MAX
    unsent_bytes_max: int = BYTES_MAX
    # Where metrics are served over HTTP: "host:port". None: nowhere.
    metrics_listen: str | None = None
    ready_file: Path | None = None
    log_level: str = "INFO"
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        # The compactor refuses relative ones, and another process may have another folder.
        object.__setattr__(self, "data_dir", absolute_path(self.data_dir))
        if self.ready_file is not None:
            object.__setattr__(self, "ready_file", absolute_path(self.ready_file))

    @property
    def entry_bytes_max(self) -> int:
        """What an entry may take, once stamped."""
        return min(self.message_bytes_max + _MARGIN_BYTES, ENTRY_BYTES_MAX)
