"""The parts of a command that platform and sources share: settings, output, store, processes."""
