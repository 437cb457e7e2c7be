//! Credentials of a NATS client: logins in URLs, certificates, `.creds` files.

use crate::config::files::{SETTINGS_FILE_BYTES, read_file, read_text_file};
use crate::config::{SettingFileError, TlsFiles};
use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{ClientConfig, RootCertStore};
use async_nats::{Auth, AuthError, ConnectOptions, ServerAddr};
use nkeys::{KeyPair, KeyPairType};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Files for connections. They are read for each connection, because expiring ones are replaced while the process runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NatsFiles {
    /// Certificates and keys for TLS.
    pub tls: TlsFiles,
    /// File with JWT and key of a user.
    pub creds: Option<PathBuf>,
}

impl NatsFiles {
    /// Checks that the files exist and contain what they must.
    pub fn check(&self) -> Result<(), SettingFileError> {
        let bad = |setting, file: &Path| {
            let file = file.to_owned();
            move |error| SettingFileError { setting, file, error }
        };
        if let Some(file) = &self.tls.ca {
            certificates(file).map_err(bad("bus.tls_ca", file))?;
        }
        if let Some((cert, key)) = &self.tls.client {
            let certificates = certificates(cert).map_err(bad("bus.tls_cert", cert))?;
            let text = read_file(key, SETTINGS_FILE_BYTES).map(Zeroizing::new).map_err(bad("bus.tls_key", key))?;
            let found = PrivateKeyDer::from_pem_slice(&text).map_err(|_| invalid("no PEM key in it"));
            let found = found.map_err(bad("bus.tls_key", key))?;
            let client = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
            let fits = client.with_client_auth_cert(certificates, found);
            fits.map_err(|error| invalid(&format!("it doesn't serve with `bus.tls_cert`: {error}")))
                .map_err(bad("bus.tls_key", key))?;
        }
        match &self.creds {
            Some(file) => sign(file, b"").map(drop).map_err(bad("bus.creds_file", file)),
            None => Ok(()),
        }
    }

    /// Returns options for connections to these servers.
    pub fn settings(&self, servers: &[ServerAddr]) -> ConnectOptions {
        let mut settings = match self.creds.clone() {
            Some(file) => ConnectOptions::with_auth_callback(move |nonce| {
                std::future::ready(sign(&file, &nonce).map_err(|error| {
                    AuthError::new(format!("`bus.creds_file`: file `{}` can't be read: {error}", file.display()))
                }))
            }),
            None => with_login(ConnectOptions::new(), servers),
        };
        if let Some(file) = &self.tls.ca {
            settings = settings.add_root_certificates(file.clone());
        }
        if let Some((cert, key)) = &self.tls.client {
            settings = settings.add_client_certificate(cert.clone(), key.clone());
        }
        // Also for the servers that a cluster announces, whose addresses come without a scheme.
        settings.require_tls(self.tls != TlsFiles::default() || servers.iter().any(ServerAddr::tls_required))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = read_file(file, SETTINGS_FILE_BYTES)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| invalid("no PEM certificate in it"))
}

/// Returns the user of a `.creds` file, with its signature of the server's nonce.
fn sign(file: &Path, nonce: &[u8]) -> io::Result<Auth> {
    let text = Zeroizing::new(read_text_file(file, SETTINGS_FILE_BYTES)?);
    let part = |name: &str| creds_part(&text, name).ok_or_else(|| invalid(&format!("no `{name}` in it")));
    let (jwt, seed) = (part("NATS USER JWT")?, part("USER NKEY SEED")?);
    // The error text could show a part of the seed.
    let key = KeyPair::from_seed(seed).ok().filter(|key| key.key_pair_type() == KeyPairType::User);
    let key = key.ok_or_else(|| invalid("its seed is not the key of a user"))?;
    let mut auth = Auth::new();
    auth.jwt = Some(jwt.to_owned());
    auth.signature = Some(key.sign(nonce).map_err(|_| invalid("its seed can't sign"))?);
    Ok(auth)
}

/// Returns the line that follows `-----BEGIN name-----`.
fn creds_part<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("BEGIN {name}-");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.find(|line| line.starts_with('-') && line.contains(&begin))?;
    lines.next().filter(|line| !line.starts_with('-'))
}

/// Sets user and password of the first URL that has them; a user alone is a token, as in other clients. The driver
/// itself ignores the login in a URL.
fn with_login(settings: ConnectOptions, servers: &[ServerAddr]) -> ConnectOptions {
    let Some(server) = servers.iter().find(|server| server.has_user_pass()) else { return settings };
    let user = percent_decoded(server.username().unwrap_or_default());
    match server.password() {
        Some(password) => settings.user_and_password(user, percent_decoded(password)),
        None => settings.token(user),
    }
}

/// Decodes percent escapes of a URL; bytes that are no escape stay as they are.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| hex::decode(digits).ok());
        rest = if let Some(byte) = escape {
            bytes.extend(byte);
            &tail[2..]
        } else {
            bytes.push(*first);
            tail
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_a_url_are_undone() {
        for (text, plain) in
            [("plain", "plain"), ("p%40ss%2Fw", "p@ss/w"), ("%C3%BC", "ü"), ("100%", "100%"), ("%zz", "%zz")]
        {
            assert_eq!(percent_decoded(text), plain);
        }
    }

    #[test]
    fn a_creds_file_has_a_jwt_and_the_seed_of_a_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (user, account) = (KeyPair::new_user().seed().unwrap(), KeyPair::new_account().seed().unwrap());
        let jwt = "-----BEGIN NATS USER JWT-----\ney.J.x\n------END NATS USER JWT------\n";
        let seed =
            |seed: &str| format!("\n-----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\n");
        for (text, expected) in [
            (format!("{jwt}{}", seed(&user)), ""),
            (seed(&user), "no `NATS USER JWT` in it"),
            (jwt.to_owned(), "no `USER NKEY SEED` in it"),
            (format!("{jwt}{}", seed(&account)), "its seed is not the key of a user"),
            (format!("{jwt}{}", seed(&user[..20])), "its seed is not the key of a user"),
            (format!("{jwt}-----BEGIN USER NKEY SEED-----\n------END"), "no `USER NKEY SEED` in it"),
        ] {
            std::fs::write(file.path(), &text).unwrap();
            match sign(file.path(), b"nonce") {
                Ok(auth) => {
                    assert_eq!((auth.jwt.as_deref(), expected), (Some("ey.J.x"), ""), "{text}");
                    let signature = auth.signature.unwrap();
                    assert!(KeyPair::from_seed(&user).unwrap().verify(b"nonce", &signature).is_ok());
                }
                Err(error) => assert_eq!(error.to_string(), expected, "{text}"),
            }
        }
    }
}
