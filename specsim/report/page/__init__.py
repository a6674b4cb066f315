"""One self-contained page of a result: charts, tables, inputs and the command that repeats it."""
