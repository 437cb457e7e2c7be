//! What a read brings from a store, by its bytes: a request that reads much is run apart.

use super::{Doc, DocKey, Page, SessionFacts};
use crate::process::large::note_large;

/// The answer of a read.
pub(super) trait ReadAnswer {
    /// Bytes of its values.
    fn value_bytes(&self) -> usize;
}

impl ReadAnswer for Vec<Doc> {
    fn value_bytes(&self) -> usize {
        self.iter().map(bytes_of).sum()
    }
}

impl ReadAnswer for Vec<(DocKey, Doc)> {
    fn value_bytes(&self) -> usize {
        self.iter().map(|(_, doc)| bytes_of(doc)).sum()
    }
}

impl ReadAnswer for Page {
    fn value_bytes(&self) -> usize {
        self.docs.value_bytes()
    }
}

impl ReadAnswer for Vec<SessionFacts> {
    fn value_bytes(&self) -> usize {
        self.iter().map(|facts| facts.state.as_ref().map_or(0, bytes::Bytes::len)).sum()
    }
}

fn bytes_of(doc: &Doc) -> usize {
    doc.value.as_ref().map_or(0, bytes::Bytes::len)
}

/// Notes what a read has brought, and hands it on.
pub(super) async fn note_read<T: ReadAnswer>(answer: T) -> T {
    note_large(answer.value_bytes()).await;
    answer
}
