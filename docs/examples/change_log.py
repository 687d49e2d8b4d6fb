"""The change log of a database table, in a topic.

Triggers record each change of the table `people` in the table `changes`, in the same transaction.
`publish` sends the changes in their order. The key of a message is the primary key of the row, and
its sequence id is the number of the change. The broker knows the last sequence id of a producer's
name, so a restarted publisher continues behind it: it loses no change, and sends none twice.
`copy_of` builds a copy of the table from the topic.

    python change_log.py 127.0.0.1:7650 people people.db
"""

from __future__ import annotations

import json
import sqlite3
import sys

from ledgerfold import Client, MessageId

SCHEMA = """
CREATE TABLE IF NOT EXISTS people (id TEXT PRIMARY KEY, city TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, row TEXT
);
CREATE TRIGGER IF NOT EXISTS inserted AFTER INSERT ON people BEGIN
    INSERT INTO changes (id, row) VALUES (new.id, json_object('id', new.id, 'city', new.city));
END;
CREATE TRIGGER IF NOT EXISTS updated AFTER UPDATE ON people BEGIN
    INSERT INTO changes (id, row) VALUES (new.id, json_object('id', new.id, 'city', new.city));
END;
CREATE TRIGGER IF NOT EXISTS deleted AFTER DELETE ON people BEGIN
    INSERT INTO changes (id, row) VALUES (old.id, NULL);
END;
"""


def publish(database: sqlite3.Connection, client: Client, topic: str) -> int:
    """Publishes the changes that are not in the topic yet. Returns their number."""
    with client.create_producer(topic, producer_name="change-log") as producer:
        since = producer.last_sequence_id()
        changes = database.execute(
            "SELECT number, id, row FROM changes WHERE number > ? ORDER BY number", (since,)
        ).fetchall()
        for number, key, row in changes:
            # A deleted row is a tombstone.
            value = None if row is None else row.encode()
            producer.send_async(value, None, partition_key=key, sequence_id=number)
        # Waits until all of them are stored, or raises the first error. Rows of the table `changes`
        # may be deleted after it, not before.
        producer.flush()
    return len(changes)


def copy_of(client: Client, topic: str) -> dict[str, str]:
    """Returns the city of each person, from the topic alone."""
    cities = dict[str, str]()
    with client.create_reader(topic, MessageId.earliest, is_read_compacted=True) as reader:
        for message in reader:
            if message.is_tombstone():
                cities.pop(message.partition_key(), None)
            else:
                cities[message.partition_key()] = json.loads(message.data())["city"]
    return cities


def main(url: str, topic: str, path: str) -> None:
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    with Client(url) as client:
        with database:
            database.execute("INSERT INTO people VALUES ('ada', 'London'), ('max', 'Bonn')")
            database.execute("UPDATE people SET city = 'Paris' WHERE id = 'ada'")
        print(publish(database, client, topic), "changes published")
        with database:
            database.execute("DELETE FROM people WHERE id = 'max'")
        print(publish(database, client, topic), "more")
        print(publish(database, client, topic), "more")
        print(copy_of(client, topic))
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
