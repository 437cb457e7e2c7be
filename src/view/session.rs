//! Answers about sessions, conversations and transcripts.
