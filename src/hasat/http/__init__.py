"""The parts of an HTTP server that sources share: listener, connection limits, route contract."""
