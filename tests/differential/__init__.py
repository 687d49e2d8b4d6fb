"""Random scenarios, answered by this broker and by another one, and compared.

generate.py   a scenario from a seed, as steps of the notation (docs/CASES.md) without expectations
replay.py     what a target answers to each step
shrink.py     the smallest scenario that still differs

For Kafka logs, with the kafka-oracle's requests:

kafka_generate.py   a history from a seed
kafka_subject.py    who answers it: the oracle, the model
kafka_duel.py       one history on two of them, compared batch by batch
kafka_show.py       a history as a person reads it
kafka_run.py        many of them
"""
