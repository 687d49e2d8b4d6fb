"""Non-blocking producers, consumers, readers and table views, shared by both APIs."""
