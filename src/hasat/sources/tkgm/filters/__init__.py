"""Filters of parcels by their properties, in the text form of CQL2."""
