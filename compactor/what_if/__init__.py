"""What strategies would come to: one scan feeds them all, and nothing is written."""
