//! Lattice: paths, and the layout of their values in documents.
