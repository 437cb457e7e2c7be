//! Session state between turns.
