"""Every prediction of specsim beside its measurement."""
