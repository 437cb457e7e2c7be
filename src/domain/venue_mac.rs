//! Codes under the venue's key for records in places where others may write.

use crate::ids::{hmac_fits, hmac_hex};

/// A record with such a code.
pub trait VenueMac: Sized {
    /// Returns the text that the code covers: everything but the code itself.
    fn covered_text(&self) -> String;

    /// Returns the code, 64 hex digits; empty before [`VenueMac::seal`].
    fn mac(&self) -> &str;

    /// Replaces the code.
    fn set_mac(&mut self, mac: String);

    /// Adds a code under the venue's key.
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
