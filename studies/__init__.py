"""One study per paper: the paper's numbers beside ours."""
