//! Context: sections, in order.
