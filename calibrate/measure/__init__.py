"""What a calibration measures: traces, run times, scores, and the profile that keeps them."""
