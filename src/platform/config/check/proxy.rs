//! `proxy`, `proxy_file` and `no_proxy` of a section.

use super::urls;
use super::values::parse;
use crate::config::layers::ConfigLayers;
use crate::config::proxy::{ProxySettings, check_exceptions};

const EXPECTED: &str = "`none`, `environment` or `http://[user:password@]host:port`";
const EXCEPTIONS: &str = "hosts with commas between such as `internal.example, 10.0.0.0/8, ::1`, of networks with at most 32 \
                          bits (IPv6 128)";

pub(super) fn read(l: &mut ConfigLayers, section: &str) -> ProxySettings {
    let exceptions =
        parse(l, &format!("{section}.no_proxy"), EXCEPTIONS, |text| check_exceptions(text).then(|| text.to_owned()));
    let Some(given) = urls::read_url(l, &format!("{section}.proxy")) else { return ProxySettings::default() };
    ProxySettings::parse(&given.text, &exceptions, &l.variables).unwrap_or_else(|error| {
        given.refuse(l, EXPECTED, Some(&error.to_string()));
        ProxySettings::default()
    })
}
