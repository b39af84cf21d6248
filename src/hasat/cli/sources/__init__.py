"""Commands of the built-in sources."""
