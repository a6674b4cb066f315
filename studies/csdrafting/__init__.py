"""Chen23: cascades of drafts."""
