"""The land registry: clients, wire format, lookups, and the endpoint server."""
