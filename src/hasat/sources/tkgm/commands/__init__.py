"""The commands `hasat tkgm`."""
