"""The compactor worker, as a broker keeps it: process, connection, supervision."""
