"""What all studies share: the protocol, measurements, style and writing."""
