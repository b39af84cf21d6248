"""The simulator of API-Football."""
