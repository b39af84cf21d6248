"""The check of identifiers: registered or not, where to send, and which kind of invoice."""
