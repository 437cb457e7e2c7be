//! Retrying connections and I/O.
