"""The battery of measurements for one short visit to an accelerator (``calibrate.gpu_suite``)."""
