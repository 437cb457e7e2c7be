//! Stages 3 to 7: the loop that performs what the core decides.
