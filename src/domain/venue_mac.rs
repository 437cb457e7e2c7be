//! A code of the venue's key on records that lie where others may write, too.

use crate::ids::{hmac_fits, hmac_hex};

/// A record that carries such a code.
pub trait VenueMac: Sized {
    /// The text that the code covers: everything but the code itself.
    fn covered_text(&self) -> String;

    /// The code, 64 hex digits; empty before [`VenueMac::seal`].
    fn mac(&self) -> &str;

    /// Puts a code in the place of the one before.
    fn set_mac(&mut self, mac: String);

    /// The same record with a code of the venue's key.
    #[must_use]
    fn seal(mut self, key: &[u8]) -> Self {
        let mac = hmac_hex(key, self.covered_text().as_bytes());
        self.set_mac(mac);
        self
    }

    /// Whether a process of the venue with this key made the record.
    fn is_genuine(&self, key: &[u8]) -> bool {
        hmac_fits(key, self.covered_text().as_bytes(), self.mac())
    }
}
