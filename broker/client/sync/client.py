"""The client of the synchronous API.

    >>> from ledgerfold import Client, MessageId
    >>> with Client("127.0.0.1:7650") as client:
    ...     with client.create_producer("prices", batching_enabled=True) as producer:
    ...         sent = producer.send(b"10", partition_key="p3")
    ...     with client.create_reader("prices", MessageId.earliest) as reader:
    ...         print([message.data() for message in reader])
    [b'10']

All producers, consumers and readers of a client share one channel; the synchronous clients of a
process share one I/O thread (io_thread.py). Names and defaults are those of Apache Pulsar's Python
client unless a docstring states otherwise.
"""

from __future__ import annotations

from functools import partial

from ledgerfold.broker.client.core.client_core import ClientCore
from ledgerfold.broker.client.messages.arguments import (
    CLIENT_NOT_EMULATED,
    CONSUMER_NOT_EMULATED,
    PRODUCER_NOT_EMULATED,
    READER_NOT_EMULATED,
    takes,
)
from ledgerfold.broker.client.messages.configs import ProducerConfig, TableViewConfig
from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.streams.connection import ClientSettings
from ledgerfold.broker.client.sync.consumer import Consumer, ListeningConsumerConfig
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.producer import Producer
from ledgerfold.broker.client.sync.reader import ListeningReaderConfig, Reader
from ledgerfold.broker.client.sync.table_view import CallThread, TableView


class Client(Closing):
    """A connection to one broker (`pulsar.Client`). Thread-safe.

    `service_url` is host:port, optionally prefixed with `ledgerfold://`. The client connects on
    first use. While the broker is unreachable, calls are retried until the operation timeout and
    then raise Unavailable. The two backoff intervals are those of Pulsar's Java client; `clock_ms`
    stamps published messages, in ms since the epoch. `partitions_update_interval_seconds`: the
    interval of checks for new partitions (as in the C++ client).

    A forked process cannot use its parent's clients: each call raises AlreadyClosed there. Create
    the client after the fork; that raises NotAllowed if the parent had a client open at the fork.
    """

    @takes(ClientSettings, CLIENT_NOT_EMULATED)
    def __init__(self, settings: ClientSettings) -> None:
        forks.check_may_connect()
        io = self._io = IoThread.shared()
        self._core = ClientCore(settings, lambda: io.is_current)
        self._io.call(self._core.connect())
        forks.invalidate_after_fork(self)

    @takes(ProducerConfig, PRODUCER_NOT_EMULATED)
    def create_producer(self, config: ProducerConfig) -> Producer:
        """Opens a producer; creates the topic if it does not exist.

        `producer_name`: None lets the broker choose one. With a name, a later producer also
        recognizes resent messages: sequence ids continue after the last id stored under the name,
        or after `initial_sequence_id`. `send_timeout_millis`: 0 = no limit. `max_pending_messages`:
        the number of messages that may wait for their receipts (default 1000); 0 = no limit.
        `block_if_queue_full`: whether sending then waits, or fails with ProducerQueueIsFull (the
        default). `batching_enabled`: groups messages into entries, up to the limits in messages,
        bytes and delay; otherwise each message is an entry and has no batch index.

        `schema` (ledgerfold.schema) encodes the contents; without one they are bytes. The broker
        registers it as a version of the topic's schema, or refuses the producer with
        IncompatibleSchema.

        `access_mode`: whether others may publish to the topic. WaitForExclusive: the call returns
        when there is no other producer, without a time limit; closing the client ends it, with
        AlreadyClosed.

        On a partitioned topic the messages of a key go to one partition, chosen by `hashing_scheme`
        (as in Pulsar's Java client; Pulsar's Python client uses yet another hash);
        `message_routing_mode` routes messages without a key. Each partition counts its own sequence
        ids.

        Raises ProducerBusy, ProducerFenced, NotAllowed, InvalidRequest, Unavailable.
        """
        return self._io.call(self._core.open_producer(config, partial(Producer, self._io)))

    @takes(ListeningConsumerConfig, CONSUMER_NOT_EMULATED)
    def subscribe(self, config: ListeningConsumerConfig) -> Consumer:
        """Subscribes; creates the topic and the durable subscription if they do not exist.

        `topic`: a name, a list of names, or a compiled pattern, such as
        `re.compile("persistent://public/default/foo-.*")`: all topics of that namespace whose names
        match as a whole. The consumer looks for new topics every `pattern_auto_discovery_period`
        seconds. `Message.topic_name` is the topic of a message; acknowledge the message, or its id.
        `message_listener(consumer, message)` replaces `receive`; it runs in the consumer's own
        thread, and waits for a seek if a message is damaged. `receiver_queue_size`: the number of
        messages prefetched; one entry may exceed it. With 0, each `receive` requests its message;
        as in Pulsar, it then allows no timeout, no batches and no partitioned topic.
        `batch_receive_policy`: when `batch_receive` returns, by default after 100 ms or with 10
        MiB. `dead_letter_policy`: the topic for messages that were redelivered too often, on a
        Shared or KeyShared subscription (on others it has no effect, as in Pulsar).
        `unacked_messages_timeout_ms`: redeliver messages that were not acknowledged for this time,
        10 s or more; None or 0 = never. `is_read_compacted`: Exclusive and Failover only. `schema`:
        decodes `Message.value`; without one, it is bytes. `initial_position`: the start of a new
        subscription; `subscription_properties`: its properties (as in Pulsar's Java client).
        `start_message_id_inclusive`: whether a seek to a message id delivers that message. Raises
        SubscriptionBusy, NotAllowed, InvalidRequest, Unavailable.
        """
        make = partial(Consumer, self._io, config.message_listener)
        return self._io.call(self._core.open_consumer(config, make))

    @takes(ListeningReaderConfig, READER_NOT_EMULATED)
    def create_reader(self, config: ListeningReaderConfig) -> Reader:
        """Opens a reader; creates the topic if it does not exist.

        It begins after `start_message_id`, or with it if `start_message_id_inclusive`. `latest` is
        the current last message; a partitioned topic accepts only `earliest`, `latest` and a time.
        `start_time_ms` instead begins with the first message of that time or later.
        `is_read_compacted`: reads only the last message of each key, where the topic is compacted.
        `receiver_queue_size`, `schema`: as of `subscribe`.
        `reader_listener(reader, message)` replaces `read_next`; it runs in the reader's own thread.
        `subscription_role_prefix` begins the generated name of the reader's subscription;
        `subscription_name` is that name (as in Pulsar's Java client), which nobody else may use
        while the reader is open.

        Kafka topics: `start_offset`, instead of an id, begins with the message at that offset, or
        the next one that exists. `isolation`: "read_committed" skips the records of aborted
        transactions, and reads only up to the first open one.

        Raises NotAllowed, InvalidRequest, KafkaError, Unavailable.
        """
        make = partial(Reader, self._io, config.reader_listener)
        return self._io.call(self._core.open_reader(config, make))

    @takes(TableViewConfig, {})
    def create_table_view(self, config: TableViewConfig) -> TableView:
        """Opens a table view, and returns when it holds everything that is in the topic at the
        call.

        Creates the topic if it does not exist. `subscription_name`: that of the view's readers.
        While the view is open, no other view, reader or consumer of the topic may use it
        (SubscriptionBusy), and no durable subscription may have that name (NotAllowed). None: a
        generated name. `schema`: its `decode` converts contents to values; without one, values are
        the contents as bytes. Keys are those of `Message.partition_key`. `strategy`: an object with
        `should_keep_left` (ledgerfold.strategies) that decides whether a message replaces its key's
        current one, for this view only; without one it always does. Raises SubscriptionBusy,
        NotAllowed, InvalidRequest, Unavailable, Corruption.
        """
        calls = CallThread(f"ledgerfold-table-view-{config.topic}")
        try:
            make = partial(TableView, self._io, calls)
            return self._io.call(self._core.open_table_view(config, calls.run, make))
        except BaseException:
            calls.stop()
            raise

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of the partitions; only the topic's own if it is not
        partitioned.
        """
        return self._io.call(self._core.topic_partitions(topic))

    def close(self) -> None:
        """Closes everything opened from the client at the same time, then the connection.

        Raises the first error, once everything is closed.
        """
        if not self._core.is_closed:
            self._io.call(self._core.close())

    def shutdown(self) -> None:
        """Closes everything at once: messages without a receipt fail with AlreadyClosed.

        Acknowledgements that are not durable yet may be lost: their messages are redelivered.
        """
        if not self._core.is_closed:
            self._io.call(self._core.shut_down())
