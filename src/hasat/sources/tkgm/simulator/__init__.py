"""The simulator of the parcel registry."""
