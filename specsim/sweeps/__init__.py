"""Sweeps: one command asked for many settings of its inputs, by many processes, into Parquet.

``values`` and ``definition`` say which settings there are and make each from its number, so that a
million of them take no room; ``reading`` reads the definition from a file; ``chunks`` answers a few
settings in whatever process it is called; ``workers`` hands chunks to processes, to dask or to ray
and goes on where some of them are lost; ``columns`` makes a table of answers, ``parts`` keeps the
tables and puts them together when all are there, and ``results`` reads them back.
"""
