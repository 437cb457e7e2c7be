//! Stage 8: what a commit decided to publish.
