"""The official web feature service of TKGM, a second upstream of the parcels."""
