"""Lists of parcels: a table with numbers or points in, their parcels out, row by row."""
