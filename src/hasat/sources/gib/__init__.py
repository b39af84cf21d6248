"""The Revenue Administration's taxpayer lists: what is published, read and merged per taxpayer."""
