//! `spend.*`: caps, prices and the time zone of a day.

use super::values::parse;
use crate::config::layers::ConfigLayers;
use crate::domain::cap::{CapPolicy, Ceiling, SpendSettings, Zone, parse_prices};

const CEILING: &str = "`tokens=N`, `cost=DOLLARS` or both with `:` between, such as `tokens=200000:cost=2.5`";

pub(super) fn read(l: &mut ConfigLayers) -> SpendSettings {
    SpendSettings {
        zone: parse(l, "spend.zone", "an IANA time zone such as `Europe/Berlin`, or `UTC`", Zone::parse),
        session: parse(l, "spend.session", CEILING, Ceiling::parse),
        owner: parse(l, "spend.owner", CEILING, Ceiling::parse),
        owners: parse(
            l,
            "spend.owners",
            "owners or tenants with commas between such as `acme/ann:tokens=5000000, acme:cost=10, acme/bob:none`",
            Ceiling::parse_owners,
        ),
        user: parse(l, "spend.user", CEILING, Ceiling::parse),
        tenant: parse(l, "spend.tenant", CEILING, Ceiling::parse),
        tenants: parse(
            l,
            "spend.tenants",
            "tenants with commas between such as `acme:tokens=5000000, globex:cost=10, initech:none`",
            Ceiling::parse_tenants,
        ),
        models: parse(
            l,
            "spend.models",
            "models or providers with commas between such as `openai/gpt-4o:tokens=5000000, openai:cost=100`",
            Ceiling::parse_models,
        ),
        prices: parse(
            l,
            "spend.prices",
            "dollars per million tokens with commas between such as `openai/gpt-4o:input=2.5:output=10`",
            parse_prices,
        ),
        reached: parse(l, "spend.reached", "`fail` or `wait`", |text| match text {
            "fail" => Some(CapPolicy::Fail),
            "wait" => Some(CapPolicy::Wait),
            _ => None,
        }),
    }
}
