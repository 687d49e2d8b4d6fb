"""Tortures real processes: `scripts/torture --minutes N [--seed S]`.

What follows is written to be a section of docs/RELIABILITY.md.

Torture
-------
Nothing in it is a stand-in: a broker process, its worker, Spark with its JVM and Python workers,
client processes that use the client library, data on a small disk of its own (a tmpfs).

**What runs.** Two topics in ledgers of 500 entries and segments of 64 KiB, so that ledgers roll
several times a second. Two producers each, one of them in batches; they keep name and sequence ids
for ever, and send again what has no receipt. One topic is compacted by event time, which rises with
the sequence ids. Compactions of both topics follow each other without a pause, and what they and
the consumer have passed is trimmed at once. On each topic a raw and a read-compacted reader stay
open over restarts, are closed now and then, and go on behind the last id they were given; another
one reads the whole compacted view again and again. A durable consumer on one topic is given
everything and acknowledges it; on the other nothing but compaction holds raw data back. Each sync
of a segment takes up to 8 ms, as on a disk.

Beside them a Kafka topic in segments of 1 MiB, which the broker's cleaner cleans without a pause,
tombstones included, on the same worker. Two idempotent producers number their batches as their
messages go, and send the very same batch again until it is answered. A reader stays open, and
another one reads the whole log again and again.

**What is done to it.** kill -9 of the broker, the worker, the JVM or one of Spark's Python workers
and their daemon, at random moments: a moment after a start, or while a run is in a phase that was
drawn. Old workers may outlive their broker for a while; nobody waits for them. Behind half of the
kills of the broker `ledgerfold verify` looks at what is left, before the next start. The disk fills
up, but for between nothing and 2 MB; in part of these the broker is killed and started meanwhile.
About nine kills a minute, and one filling; fewer where the machine is busy.

**What is counted.** A key belongs to one producer, whose sequence ids are the order of its
messages, and a producer goes on only when what came before has its receipt; all content follows
from the seed. So it is known, exactly, what each read must have met:

* *lost*: a key's last acknowledged message, or a later one, was not in a compacted view that began
  to be read after the receipt; or the durable consumer was given a later message of that producer
  and never this one; or it was missing in the raw tail.
* *duplicated*: one sequence id of one producer stored under two ids.
* *at another offset*: a record of the Kafka topic is read where its receipt does not say.
* *out of order*: ids, or sequence ids of one producer, that do not rise; receipts likewise.
* *read but never sent so*: a key or value that is not the one of its sequence id.
* *kills that left damage*: `verify` found some.
* *starts that failed*: the process ended, or was not ready within 30 s. A start that a full disk
  refuses in the documented words is not among them.
* *runs* by their outcome. A fault may end a run with an error that names it; it may not end
  "cancelled", or with damaged or missing data. *Runs that never ended* change in nothing for 45 s
  while the compactor is ready, or are in progress in the history at the end.
* *clients that hung*: no receipt, no message and no answer for 90 s; *errors that no fault
  explains*: what a client met that no retry can mend, but for a full disk.

**The end.** Faults stop. All that was sent gets its receipt; the broker stops with exit code 0 and
starts once more; a compaction of each topic succeeds, the Kafka topic is cleaned up to its active
segment, and a raw tail is published behind it. Then
the compacted view must have exactly what it should, the tail must be complete, open readers and the
consumer must arrive at the end, `topics stats-internal` must agree with the run and the log. The
broker stops; none of its processes is left; the store opens without damage, each segment is what
its record says, and no file lies about that no record names.

The exit code is 0 when all of this is so and every count that should be zero is. Else the data and
all logs stay, with every fault and its time in events.log, and the last lines say where. One seed
draws the same faults again, but not at the same instructions.

**What it does not do.** The machine never loses power: what was not synced stays
(the simulator does that). No byte is damaged, no call to the disk fails but for want of room.

Modules
-------
round.py is one round; faults.py what is done; life.py, clients.py and compactions.py what runs;
producing.py, reading.py, consuming.py the client processes, kafka_producing.py, kafka_reading.py
and cleanings.py those of the Kafka topic and what cleans it; bookkeeping.py and seen.py judge;
ending.py and offline.py are the last check; tally.py and report.py say how it went.
"""
