//! Answers about lattice values: reads, lists, writes, searches.
