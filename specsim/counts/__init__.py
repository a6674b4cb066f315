"""What inference engines count of their drafts and how long their steps take."""
