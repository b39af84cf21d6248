"""The source `gib`: the taxpayer lists of the Turkish Revenue Administration."""
