//! `proxy`, `proxy_file` and `no_proxy` of a section.

use super::super::proxy::ProxySettings;
use super::{Layers, text, urls};

const EXPECTED: &str = "`none`, `environment` or `http://[user:password@]host:port`";

pub(super) fn read(l: &mut Layers, section: &str) -> ProxySettings {
    let exceptions = text(l, &format!("{section}.no_proxy"));
    let Some(given) = urls::read_url(l, &format!("{section}.proxy")) else { return ProxySettings::default() };
    ProxySettings::parse(&given.text, &exceptions, &l.variables).unwrap_or_else(|why| {
        given.refuse(l, EXPECTED, Some(&why));
        ProxySettings::default()
    })
}
