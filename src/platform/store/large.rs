//! The size of what a read returns: a request that reads much is run on its own.

use super::{Doc, DocKey, DocPage, SessionFacts};
use crate::process::large::note_large;

/// An answer of a read that has a size.
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

impl ReadAnswer for DocPage {
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

/// Notes the size of `answer` for its request ([`note_large`]), which may yield once, and returns it.
pub(super) async fn note_read<T: ReadAnswer>(answer: T) -> T {
    note_large(answer.value_bytes()).await;
    answer
}
