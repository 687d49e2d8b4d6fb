"""A pure model of Kafka's partition log and its cleaner: the oracle inside the project.

batches.py       record batches: spans, sizes to the byte, what a rebuilt one looks like
segments.py      a run of batches with its indexes
producers.py     a log's state of idempotent and transactional producers
settings.py      a topic's settings
records.py       what may be appended, and a batch from what a request says
log.py           a partition's log: append, roll, truncate, high watermark, retention, reads, reopen
cleanable.py     what of a log a round may clean, the dirty ratio, what is overdue
transactions.py  which batches and markers of transactions a round may drop
cleaner.py       one round: map, groups, filtering
manager.py       states, checkpoints, choice, a turn
world.py         several logs, a clock, requests in the words of the kafka-oracle

It shares no code with the product, does no I/O and has its own clock. Two profiles: `kafka-4.1`
does what Kafka 4.1.0 does, `documented` omits the defects.
"""
