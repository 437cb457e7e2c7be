//! Answers about the venue itself: status, identity, owners.
