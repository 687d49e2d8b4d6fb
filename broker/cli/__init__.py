"""The command line `ledgerfold`: pulsar-admin's verbs, and additional ones."""
