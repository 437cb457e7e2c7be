//! Stages 1 and 2: arrive and admit.
