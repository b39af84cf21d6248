"""Parcels of the land registry: asked by point or number, and areas scanned with few questions."""
