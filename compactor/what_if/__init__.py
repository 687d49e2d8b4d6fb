"""What-if analyses of strategies: one scan feeds them all, and nothing is written."""
