//! `trellis mock-llm`: a rules file served as an OpenAI-compatible endpoint.
