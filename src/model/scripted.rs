//! A model that follows a rules file.
