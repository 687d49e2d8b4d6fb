"""Utilities used by all other packages: names, the clock, settings, shielding from cancellation."""
