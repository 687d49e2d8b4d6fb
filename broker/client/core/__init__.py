"""Producers, consumers, readers and table views without their waiting: both APIs share them."""
