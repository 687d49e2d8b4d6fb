"""Tortures real processes: `scripts/torture --minutes N [--seed S]`.

The following text is a section for docs/RELIABILITY.md.

Torture ------- No part is a stand-in: a broker process, its worker, Spark with its JVM and Python
workers, client processes with the client library, data on a small separate disk (a tmpfs).

**What runs.** Two topics in ledgers of 500 entries and segments of 64 KiB, so that ledgers roll
several times a second. Each topic has two producers, one of them with batches; they keep name and
sequence ids, and send again what has no receipt. One topic is compacted by event time, which rises
with the sequence ids. Compactions of both topics follow each other without a pause, and ledgers
that they and the consumer have passed are trimmed at once. On each topic a raw and a read-compacted
reader stay open over restarts, are closed now and then, and go on behind the last id they were
given; another one reads the whole compacted view again and again. A durable consumer on one topic
is given everything and acknowledges it; on the other nothing but compaction holds raw data back.
Each sync of a segment takes up to 8 ms, as on a disk.

A Kafka topic in segments of 1 MiB is cleaned by the broker's cleaner without a pause, tombstones
included, on the same worker. Two idempotent producers number their batches as their messages go,
and send the very same batch again until it is answered. A reader stays open, and another one reads
the whole log again and again.

**What is done to it.** kill -9 of the broker, the worker, the JVM or one of Spark's Python workers
and their daemon, at random moments: shortly after a start, or in a drawn phase of a run. Old
workers may outlive their broker for a while; the round does not wait for them. After half of the
kills of the broker, `ledgerfold verify` checks the files before the next start. The disk fills up,
but for between nothing and 2 MB; in part of these the broker is killed and started meanwhile. About
nine kills a minute, and one filling; fewer where the machine is busy.

**What is counted.** A key belongs to one producer, whose sequence ids order its messages, and a
producer continues only after the previous receipt; the seed determines all content. So it is known
exactly what each read must return:

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
  explains*: errors of a client that no retry can fix, except a full disk.

**The end.** Faults stop. All that was sent gets its receipt; the broker stops with exit code 0 and
starts once more; a compaction of each topic succeeds, the Kafka topic is cleaned up to its active
segment, and a raw tail is published behind it. Then the compacted view must be exact, the tail
complete, open readers and the consumer must reach the end, and `topics stats-internal` must agree
with the run and the log. The broker stops; none of its processes is left; the store opens without
damage, each segment matches its record, and no file lacks a record.

The exit code is 0 when all of this is so and every count that should be zero is. Else the data and
all logs stay, with every fault and its time in events.log, and the last lines say where. One seed
draws the same faults again, but not at the same instructions.

**What it does not do.** The machine never loses power: unsynced writes survive (the simulator
covers their loss). No byte is damaged, and disk calls fail only for lack of space.

Modules ------- round.py is one round; faults.py injects faults; life.py, clients.py and
compactions.py are the load; producing.py, reading.py, consuming.py are the client processes,
kafka_producing.py, kafka_reading.py and cleanings.py those of the Kafka topic and its cleanings;
bookkeeping.py and seen.py judge; ending.py and offline.py are the last check; tally.py and
report.py print the result.
"""
