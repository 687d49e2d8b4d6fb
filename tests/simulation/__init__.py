"""Simulates the whole broker in one process, under one seed.

    scripts/simulate --seed 1 --count 500
    scripts/simulate --seed 17 --count 1 --trace

A seed determines a scenario (tests/simulation/scenario.py): limits so small that a roll is always
near, and a list of operations (clients.py, administration.py, machine.py): publishing, reading,
compacting, unloading, crashes, disk calls that fail or take long. The operations only begin
actions; the same seed then determines each step.

What is modelled

* Order: each step of each task, and each call of the file system and of the metadata store in a
  thread, may be ordered before or after any other (loop.py, jobs.py). A flush is half done while
  the loop continues; results of threads arrive late; one task or thread may be delayed for long.
* Time: virtual. Nothing waits for real time.
* The disk (disk.py, files.py): pages written back in any order, torn pages, lost names, a sync that
  fails and drops pages, errors, full, slow. kill -9 keeps written data, a power loss does not, and
  either may happen in the middle of any call.
* Metadata (key_value.py): a write is all or nothing; a failed write may be visible after a crash.
* The compactor (compactor.py): works in steps, is cancelled, is killed, and continues late. Topics
  are compacted by changing strategies: over columns, by the time of the run, and message by
  message. (Other tests cover errors of user-defined classes.)
* Kinds of scenarios (`--kind`): `faults`; `damage`, in which bits flip; `partitions`
  (partitioned.py), in which a partitioned topic grows, is deleted and recreated while its
  partitions are used and compacted, topics are terminated, and subscriptions may be non-durable;
  `metadata` (whole_state.py, lost_metadata.py), in which snapshots are saved and restored, a topic
  is imported, and the store loses its last writes at the end.
* Clients (publishers.py, readers.py): through the real stream handlers, with connections that
  break, lost frames in flight, and resends under the same ids.

What is checked (oracle.py, readers.py, converge.py): the invariants of docs/ARCHITECTURE.md, at
each receipt, delivery and metadata write; at the end faults stop, and everything must become idle
and be complete, before and after one more power loss.

What is not modelled: gRPC and the client library, Spark and the real worker process, RocksDB's own
files, switches between two Python instructions of a thread without a call, a disk that reports a
sync that it did not perform.
"""
