"""Blocks and building units (bağımsız bölüm) of parcels, where the registry has them."""
