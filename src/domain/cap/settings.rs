//! The venue's settings of caps, and the caps that apply to a call.

use super::{Cap, CapScope, Day, Zone};
use crate::budget::{Budget, BudgetError};
use crate::chat::ModelSettings;
use crate::chat::Price;
use crate::ids::{Owner, OwnerPart};
use crate::named_list::parse_named_list;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Name of the cap of a session in error texts.
pub const SESSION_CAP: &str = "the cap of this session";

/// Tokens and dollars at most; absent = no cap.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ceiling {
    /// Tokens of prompts and replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, by the prices of the models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// Treatment of a call for which a cap of the day has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CapPolicy {
    /// The task of the call fails.
    #[default]
    Fail,
    /// The call waits for the next day.
    Wait,
}

/// Settings under `spend.*`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpendSettings {
    /// Time zone whose midnight begins a day.
    pub zone: Zone,
    /// Cap of every session.
    pub session: Ceiling,
    /// Cap of every owner per day.
    pub owner: Ceiling,
    /// Caps of named owners, or of every owner of a tenant, in place of `owner`.
    pub owners: Vec<(String, Ceiling)>,
    /// Cap of every user of an owner per day.
    pub user: Ceiling,
    /// Cap of every tenant per day, of all its owners together.
    pub tenant: Ceiling,
    /// Caps of named tenants, in place of `tenant`.
    pub tenants: Vec<(String, Ceiling)>,
    /// Caps of models per day, by `provider/name` or `provider`.
    pub models: Vec<(String, Ceiling)>,
    /// Prices of models, by `provider/name`.
    pub prices: Vec<(String, Price)>,
    /// Treatment of calls beyond the caps of a day.
    pub reached: CapPolicy,
}

/// A cap in money without the prices that it needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpendSettingsError {
    /// The cost of a model is capped and its price is missing.
    #[error("`spend.models` caps the cost of `{model}`, which has no price in `spend.prices`")]
    UnpricedModel {
        /// Model as `provider/name`.
        model: String,
    },
    /// The cost of calls is capped and no model has a price.
    #[error("a cap in money needs the prices of the models in `spend.prices`; there are none")]
    NoPrices,
}

impl Ceiling {
    /// Whether there is no cap.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that each limit is more than 0.
    pub fn check(&self) -> Result<(), BudgetError> {
        self.budget().check()
    }

    fn budget(&self) -> Budget {
        Budget { tokens: self.tokens, cost: self.cost, ..Budget::default() }
    }

    /// Returns the lower of both in tokens and in cost.
    fn lower(self, other: Self) -> Self {
        let lower = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let tokens = self.tokens.into_iter().chain(other.tokens).min();
        Self { tokens, cost: lower(self.cost, other.cost) }
    }

    /// Reads `tokens=200000:cost=2.5`; an empty text and `none` are no cap.
    pub fn parse(text: &str) -> Option<Self> {
        if matches!(text.trim(), "" | "none") {
            return Some(Self::default());
        }
        let (mut tokens, mut cost) = (None, None);
        for part in text.split(':') {
            match part.trim().split_once('=')? {
                ("tokens", number) => set_once(&mut tokens, number)?,
                ("cost", number) => set_once(&mut cost, number)?,
                _ => return None,
            }
        }
        let ceiling = Self { tokens, cost };
        ceiling.check().is_ok().then_some(ceiling)
    }

    /// Reads `acme/ann:tokens=5000000, acme:cost=10`: caps of owners and tenants.
    pub fn parse_owners(text: &str) -> Option<Vec<(String, Self)>> {
        let is_known = |name: &str| name.parse::<Owner>().is_ok() || OwnerPart::new(name).is_ok();
        parse_named_list(text, |name| capped_name(name, is_known), Self::parse_named)
    }

    /// Reads `acme:tokens=5000000, globex:none`: caps of tenants.
    pub fn parse_tenants(text: &str) -> Option<Vec<(String, Self)>> {
        let is_known = |name: &str| OwnerPart::new(name).is_ok();
        parse_named_list(text, |name| capped_name(name, is_known), Self::parse_named)
    }

    /// Reads `openai/gpt-4o:tokens=5000000, openai:cost=100`: caps of models and providers.
    pub fn parse_models(text: &str) -> Option<Vec<(String, Self)>> {
        let is_known = |name: &str| if name.contains('/') { is_model(name) } else { !name.contains(':') };
        parse_named_list(text, |name| capped_name(name, is_known), Self::parse_named)
    }

    /// Reads the cap of a name. No cap must be written as `none`, so that a slip removes none.
    fn parse_named(text: &str) -> Option<Self> {
        Self::parse(text).filter(|_| !text.trim().is_empty())
    }
}

/// Reads `openai/gpt-4o:input=2.5:output=10, …`: dollars per million tokens; `cacheRead` and `cacheWrite` may follow.
pub fn parse_prices(text: &str) -> Option<Vec<(String, Price)>> {
    parse_named_list(text, |name| capped_name(name, is_model), parse_price)
}

fn parse_price(text: &str) -> Option<Price> {
    let (mut input, mut output, mut cache_read, mut cache_write) = (None, None, None, None);
    for part in text.split(':') {
        match part.trim().split_once('=')? {
            ("input", number) => set_once(&mut input, number)?,
            ("output", number) => set_once(&mut output, number)?,
            ("cacheRead", number) => set_once(&mut cache_read, number)?,
            ("cacheWrite", number) => set_once(&mut cache_write, number)?,
            _ => return None,
        }
    }
    let price = Price { input: input?, output: output?, cache_read, cache_write };
    price.check().is_ok().then_some(price)
}

/// Sets a number from a text; `None` if it is set already.
fn set_once<T: FromStr>(number: &mut Option<T>, text: &str) -> Option<()> {
    if number.is_some() {
        return None;
    }
    *number = Some(text.trim().parse().ok()?);
    Some(())
}

/// Whether a text is `provider/name` with neither of them empty.
fn is_model(name: &str) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(provider, name)| !provider.is_empty() && !provider.contains(':') && !name.is_empty())
}

/// Returns a name of a list as text. A name that ends with `:none` is none: it is a slip, and removes no cap.
fn capped_name(name: &str, is_known: impl Fn(&str) -> bool) -> Option<String> {
    let is_legal = !name.is_empty() && !name.contains(char::is_whitespace) && !name.ends_with(":none");
    (is_legal && is_known(name)).then(|| name.to_owned())
}

/// Returns the ceiling of a name in a list.
fn find_named(list: &[(String, Ceiling)], name: &str) -> Option<Ceiling> {
    list.iter().find(|(known, _)| known == name).map(|(_, ceiling)| *ceiling)
}

impl SpendSettings {
    /// Whether calls beyond the caps of a day wait for the next one.
    pub fn waits_for_next_day(&self) -> bool {
        self.reached == CapPolicy::Wait
    }

    /// Returns the price of a model: the venue's, else the one of the agent's configuration.
    pub fn price(&self, model: &ModelSettings) -> Option<Price> {
        self.venue_price(model).or(model.price)
    }

    fn venue_price(&self, model: &ModelSettings) -> Option<Price> {
        self.prices.iter().find(|(name, _)| *name == model.id()).map(|(_, price)| *price)
    }

    /// Returns the ceiling of an owner's day: its own, its tenant's, or the general one.
    fn owner_ceiling(&self, owner: &Owner) -> Ceiling {
        let named = |name: &str| find_named(&self.owners, name);
        named(&owner.to_string()).or_else(|| named(owner.tenant().as_str())).unwrap_or(self.owner)
    }

    /// Makes the cap of a day; `None` if the ceiling has no limit.
    fn day_cap(&self, of: CapScope, name: String, ceiling: Ceiling, day: Day) -> Option<Cap> {
        let (limits, whole) = (ceiling.budget(), self.waits_for_next_day());
        (!ceiling.is_none()).then_some(Cap { of, name, limits, day: Some(day), whole })
    }

    /// Returns the caps of all models for the day at `now`.
    pub fn model_caps(&self, now: Millis) -> impl Iterator<Item = Cap> {
        let day = self.zone.day(now);
        self.models.iter().filter_map(move |(model, ceiling)| {
            let name = format!("the venue's cap of `{model}` for a day");
            self.day_cap(CapScope::Model(model.clone()), name, *ceiling, day.clone())
        })
    }

    /// Returns the cap of an owner's day.
    pub fn owner_cap(&self, owner: &Owner, now: Millis) -> Option<Cap> {
        let name = format!("the cap of owner `{owner}` for a day");
        self.day_cap(CapScope::Owner, name, self.owner_ceiling(owner), self.zone.day(now))
    }

    /// Returns the cap of the day of one of an owner's users.
    pub fn user_cap(&self, user: &str, now: Millis) -> Option<Cap> {
        let whose = if user.is_empty() { "every user".to_owned() } else { format!("user `{user}`") };
        let name = format!("the cap of {whose} for a day");
        self.day_cap(CapScope::User(user.to_owned()), name, self.user, self.zone.day(now))
    }

    /// Returns the cap of the day of an owner's tenant.
    pub fn tenant_cap(&self, owner: &Owner, now: Millis) -> Option<Cap> {
        let tenant = owner.tenant().as_str();
        let ceiling = find_named(&self.tenants, tenant).unwrap_or(self.tenant);
        let name = format!("the cap of tenant `{tenant}` for a day");
        self.day_cap(CapScope::Tenant, name, ceiling, self.zone.day(now))
    }

    /// Returns the cap of a session: the venue's, and its agent's.
    pub fn session_cap(&self, agents: Ceiling) -> Option<Cap> {
        let ceiling = self.session.lower(agents);
        let name = SESSION_CAP.to_owned();
        (!ceiling.is_none()).then(|| Cap {
            of: CapScope::Session,
            name,
            limits: ceiling.budget(),
            day: None,
            whole: false,
        })
    }

    /// Returns the caps that apply to a call for a user of an owner.
    pub fn caps_of_call(
        &self,
        owner: &Owner,
        user: &str,
        model: &ModelSettings,
        agents: Ceiling,
        now: Millis,
    ) -> Vec<Cap> {
        let covers =
            |cap: &Cap| matches!(&cap.of, CapScope::Model(name) if *name == model.provider || *name == model.id());
        let own =
            self.session_cap(agents).into_iter().chain(self.owner_cap(owner, now)).chain(self.user_cap(user, now));
        own.chain(self.tenant_cap(owner, now)).chain(self.model_caps(now).filter(covers)).collect()
    }

    /// Returns why calls of a model can't be made: a cap of the venue limits their cost, and only the agent's author
    /// gives their price.
    pub fn price_error(&self, owner: &Owner, model: &ModelSettings) -> Option<String> {
        if self.venue_price(model).is_some() {
            return None;
        }
        let caps = self.caps_of_call(owner, "", model, Ceiling::default(), Millis(0));
        let cap = caps.iter().find(|cap| cap.limits.cost.is_some())?;
        let id = model.id();
        Some(format!("{} is in money, and model `{id}` has no price in `spend.prices`: it is not called", cap.name))
    }

    /// Returns the key of the first setting that caps money; `spend.models` if none does.
    pub fn money_setting(&self) -> &'static str {
        self.find_money_setting().unwrap_or("spend.models")
    }

    fn find_money_setting(&self) -> Option<&'static str> {
        let any = |named: &[(String, Ceiling)]| named.iter().any(|(_, ceiling)| ceiling.cost.is_some());
        let settings = [
            ("spend.models", any(&self.models)),
            ("spend.session", self.session.cost.is_some()),
            ("spend.owner", self.owner.cost.is_some()),
            ("spend.owners", any(&self.owners)),
            ("spend.user", self.user.cost.is_some()),
            ("spend.tenant", self.tenant.cost.is_some()),
            ("spend.tenants", any(&self.tenants)),
        ];
        settings.into_iter().find(|(_, caps_money)| *caps_money).map(|(key, _)| key)
    }

    /// Checks that the venue has a price for each model whose cost is capped.
    pub fn check(&self) -> Result<(), SpendSettingsError> {
        let missing = self.models.iter().find(|(name, ceiling)| {
            ceiling.cost.is_some() && name.contains('/') && !self.prices.iter().any(|(priced, _)| priced == name)
        });
        if let Some((name, _)) = missing {
            return Err(SpendSettingsError::UnpricedModel { model: name.clone() });
        }
        if self.prices.is_empty() && self.find_money_setting().is_some() {
            return Err(SpendSettingsError::NoPrices);
        }
        Ok(())
    }
}
