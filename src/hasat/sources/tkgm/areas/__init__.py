"""Areas to scan and scanned areas: uploaded files, places by name, and deleting a scan."""
