"""Serving under load: requests that arrive over time, the steps of a scheduler, what users see."""
