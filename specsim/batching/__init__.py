"""Decisions by load: what a batch gains and pays, and the schedule that follows from it."""
