"""The command line `ledgerfold`: pulsar-admin's verbs and a few of our own."""
