"""The compactor worker of a broker: process, connection, supervision."""
