//! Composition root: the only file that names a concrete backend.
