//! Seam 4, `Operation`: what agents and callers can do.
