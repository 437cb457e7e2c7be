//! Processes: a Trellis fleet, and the worker of the examples.
