"""The dataset of this source."""

from hasat.feed.dataset import Dataset

SOURCE = "tkgm"

PARCELS = Dataset("parcels", SOURCE, "Cadastral parcels, as GeoJSON features")
