"""What strategies of compaction, and times to compact, would come to on a topic."""
