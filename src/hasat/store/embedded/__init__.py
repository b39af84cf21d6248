"""The embedded PostgreSQL server: its programs, folders, user and life cycle."""
