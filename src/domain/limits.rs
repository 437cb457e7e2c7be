//! Every limit, with its unit.
