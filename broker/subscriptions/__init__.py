"""Subscriptions: cursors, dispatch to consumers, the route that a read takes through a view."""
