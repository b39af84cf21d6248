"""The simulator of the taxpayer lists."""
