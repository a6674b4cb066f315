"""Where the seconds of a step come from: costs by load, coefficients, tables of kernels."""
