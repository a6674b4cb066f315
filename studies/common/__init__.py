"""What all studies share: measurements, rows that were decoded, claims, figures and writing."""
