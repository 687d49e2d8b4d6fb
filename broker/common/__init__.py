"""What every room stands on: names, the clock, settings, work that goes on to its end."""
