"""Xia22: a drafter that fills in masks."""
