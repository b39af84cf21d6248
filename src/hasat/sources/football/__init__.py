"""API-Football v3: leagues, fixtures and their details, standings, injuries, statistics."""
