//! `quota.*`: the default quota of owners.

use super::values::{number, parse};
use crate::config::layers::ConfigLayers;
use crate::domain::quota::{ByteLimit, MOST, QuotaSettings};

pub(super) fn read(l: &mut ConfigLayers) -> QuotaSettings {
    QuotaSettings {
        documents: number(l, "quota.documents", 0..=MOST.cast_signed()),
        bytes: parse(
            l,
            "quota.bytes",
            "bytes such as `1073741824`, or `1%` to `100%` of the store's limit",
            ByteLimit::parse,
        ),
        sessions: number(l, "quota.sessions", 0..=MOST.cast_signed()),
        jobs: number(l, "quota.jobs", 0..=MOST.cast_signed()),
    }
}
