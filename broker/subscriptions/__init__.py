"""Subscriptions: cursors, dispatch to consumers, the routing of reads through a view."""
