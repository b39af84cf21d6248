"""The feed: reconcile a run with the mirror, number every change, and serve them to consumers."""
