//! Answers about the audit, `doctor`'s report and the health of a venue.
