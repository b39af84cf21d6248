"""Commands of the platform, one module per group."""
