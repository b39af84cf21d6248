"""HTTP API: the app, authentication, problems, health, metrics and the platform's routes."""
