"""Simulates the whole broker in one process, under one seed.

    scripts/simulate --seed 1 --count 500
    scripts/simulate --seed 17 --count 1 --trace

A seed draws a scenario up front (tests/simulation/scenario.py): limits so small that a roll is
always near, and a list of operations (clients.py, administration.py, machine.py): publishing,
reading, compacting, unloading, crashes, calls of the disk that fail or take long. The operations
only begin things; what then happens when is picked step by step, by the same seed.

What is modelled

* Order: each step of each task, and each call of the file system and of the metadata store in a
  thread, may come before or after any other (loop.py, jobs.py). A flush is half done while the loop
  goes on; results of threads arrive late; one task or thread may be starved for long.
* Time: virtual. Nothing waits for a clock on the wall.
* The disk (disk.py, files.py): pages written back in any order, torn pages, names that are lost, a
  sync that fails and drops pages, errors, full, slow. kill -9 keeps what was written, a power loss
  does not, and either may come in the middle of any call.
* Metadata (key_value.py): a write is all or nothing; one that failed may show after a crash.
* The compactor (compactor.py): works in steps, is cancelled, is killed, and goes on late. Topics
  are compacted by different strategies, which change in between: by columns, by the time of the
  run, and message by message. (What a user-defined class may do wrong is tested elsewhere.)
* Kinds of scenarios (`--kind`): `faults`; `damage`, in which bits flip; `partitions`
  (partitioned.py), in which a partitioned topic grows, is deleted and comes again while its
  partitions are used and compacted, topics are terminated, and subscriptions need not be durable.
* Clients (publishers.py, readers.py): through the real stream handlers, with connections that
  break, frames under way that are lost, and resends under the same ids.

What is checked (oracle.py, readers.py, converge.py): the invariants of docs/ARCHITECTURE.md, at
each receipt, delivery and metadata write; at the end faults stop, and everything must come to rest
and be there, before and after one more power loss.

What is not modelled: gRPC and the client library, Spark and the real worker process, RocksDB's own
files, what happens between two Python instructions of a thread that calls nothing, a disk that
reports a sync that it did not do.
"""
