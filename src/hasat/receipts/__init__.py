"""Receipts: signed statements of what was asked, what the answer was and what it was read from."""
