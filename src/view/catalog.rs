//! Answers about the catalog of operations and tools.
