"""The upstreams Hasat can talk to. Each is one `Source` object; a source never imports another."""
