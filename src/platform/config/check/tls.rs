//! `tls_ca`, `tls_cert` and `tls_key` of a section.

use super::values::path;
use crate::config::layers::ConfigLayers;
use crate::config::settings::TlsFiles;

/// Reads the files; certificate and key must be set together.
pub(super) fn read(l: &mut ConfigLayers, section: &str) -> TlsFiles {
    let [ca, cert, key] = ["tls_ca", "tls_cert", "tls_key"].map(|name| format!("{section}.{name}"));
    let client = match (path(l, &cert), path(l, &key)) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (found, _) => {
            let (there, missing) = if found.is_some() { (cert, key) } else { (key, cert) };
            let origin = l.entry(&there).origin.clone();
            l.add_error(&there, origin, format!("a client shows a certificate and has its key: set `{missing}` too"));
            None
        }
    };
    TlsFiles { ca: path(l, &ca), client }
}
