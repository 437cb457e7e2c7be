//! Store over fjall: one writer thread, group commit, fsync.
