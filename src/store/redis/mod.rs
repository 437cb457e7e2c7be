//! Store over Redis Functions: one function per method.
