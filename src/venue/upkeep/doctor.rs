//! Which guarantees the settings of a venue's servers give, and what to change.

use crate::domain::quota::QuotaKind;
use crate::domain::time::Millis;
use crate::store::{BackendSetting, StoreError};
use crate::venue::upkeep::audit::{self, AuditError};
use crate::venue::{Venue, clocks};
use crate::view::audit::{DoctorView, GuaranteeView, SettingView};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

/// The guarantees of Trellis, by number.
const GUARANTEES: [(u8, &str); 7] = [
    (1, "accepted means finished, once"),
    (2, "a turn is all or nothing, and fenced"),
    (3, "a recorded model reply is never paid twice"),
    (4, "a tool that must not be repeated is never silently repeated"),
    (5, "outbound ids are a function of the turn"),
    (6, "authority only narrows"),
    (7, "what the model saw is reproducible"),
];

/// Guarantees that depend on the store keeping what it acknowledged.
const DURABLE: &[u8] = &[1, 2, 3, 4, 7];
/// Guarantees that depend on the queue keeping what it acknowledged.
const QUEUED: &[u8] = &[1];

/// Settings whose problem costs capacity or speed but no guarantee, and those that break few. A name also stands for
/// those with ` of` a thing or ` at` a server after it.
const REACH: [(&str, &[u8]); 17] = [
    ("redis memory", &[]),
    ("redis replicas", &[]),
    ("redis servers", &[]),
    ("redis slots on the move", &[]),
    ("embedded size", &[]),
    ("quota of an owner", &[]),
    ("redis save", &[]),
    ("redis maxmemory-policy", &[1, 2, 3, 4, 7]),
    ("nats version", &[]),
    ("nats jetstream", QUEUED),
    ("nats max_payload", &[]),
    ("nats inbound subjects", &[]),
    ("nats replicas", &[]),
    ("nats options", &[]),
    ("nats sync_interval", QUEUED),
    ("nats stream size", &[]),
    (STREAM_MADE_AGAIN, &[]),
];

/// Name of the settings of streams that were deleted while the venue ran.
const STREAM_MADE_AGAIN: &str = "nats stream made again";

/// Values of settings that a server doesn't disclose.
const UNDISCLOSED: [&str; 2] = ["unknown", "not shown to clients"];

/// State of one guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuaranteeVerdict {
    /// Every setting that it depends on is right.
    Holds,
    /// It depends on a setting that the server doesn't disclose.
    Unknown,
    /// A setting breaks it.
    Broken,
}

impl GuaranteeVerdict {
    /// Returns the state as one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Unknown => "unknown",
            Self::Broken => "broken",
        }
    }
}

/// A setting with the guarantees that depend on it.
type SettingReach = (BackendSetting, &'static [u8]);

/// Result of an examination.
#[derive(Debug, Clone, PartialEq)]
pub struct Examination {
    settings: Vec<SettingReach>,
    /// Number, text and state of each guarantee.
    pub verdicts: Vec<(u8, &'static str, GuaranteeVerdict)>,
    /// Whether the store has lost changes, or the queue a stream, that no operator has settled: a fact of the past, not a
    /// setting.
    pub unsettled: bool,
}

/// Reads the settings of the servers and judges them.
pub async fn examine(venue: &Venue) -> Result<Examination, Box<dyn Error + Send + Sync>> {
    let store = venue.store.settings().await?;
    let mut bus = venue.bus.settings().await?;
    let mut own = vec![policy_setting()];
    let (history, mut unsettled) = history_setting(venue).await?;
    unsettled |= settle_streams(venue, &mut bus).await?;
    own.extend(history);
    own.extend(journal_setting(venue));
    own.push(quota_setting(venue).await);
    own.extend(backlog_setting(venue).await);
    own.push(clock_setting(venue).await?);
    let own = with_reach(own, &[]);
    let settings: Vec<SettingReach> = with_reach(store, DURABLE).chain(with_reach(bus, QUEUED)).chain(own).collect();
    let verdicts = GUARANTEES.iter().map(|(n, text)| (*n, *text, judge(*n, &settings))).collect();
    Ok(Examination { settings, verdicts, unsettled })
}

/// Returns the settings that break a guarantee, by name, each with what to change: those of the store and of the
/// streams that keep messages. It may be called often.
pub async fn wrong_settings(venue: &Venue) -> Result<BTreeMap<String, String>, Box<dyn Error + Send + Sync>> {
    let store = venue.store.settings().await?;
    let bus = venue.bus.wrong_settings().await?;
    Ok(breaking_settings(with_reach(store, DURABLE).chain(with_reach(bus, QUEUED))))
}

fn breaking_settings(settings: impl Iterator<Item = SettingReach>) -> BTreeMap<String, String> {
    let breaks =
        |(setting, reach): &SettingReach| !reach.is_empty() && setting.problem.is_some() && !is_undisclosed(setting);
    settings.filter(breaks).filter_map(|(setting, _)| advice_line(&setting).map(|line| (setting.name, line))).collect()
}

/// Describes how old a policy may be under which a turn runs.
fn policy_setting() -> BackendSetting {
    let value = "read when a turn begins and before its calls, and compared by its commit: none is stale";
    BackendSetting { name: "policies".to_owned(), value: value.to_owned(), problem: None }
}

/// Age of a waiting message above which no worker seems to take it.
const UNTAKEN: Duration = Duration::from_mins(1);

/// Owners whose waiting messages are listed by name.
const OWNERS_NAMED: usize = 5;

/// Describes the messages that wait in the queue, by owner, and the age of the oldest.
async fn backlog_setting(venue: &Venue) -> Option<BackendSetting> {
    // A queue that doesn't answer reports that among its own settings.
    let found = venue.bus.backlog().await.ok()?;
    let age = found.oldest.map(|oldest| venue.now().elapsed_since(oldest));
    let problem = age.is_some_and(|age| age > UNTAKEN).then(|| {
        "no worker takes them: start workers, or see in their log and in `trellis worker list` what keeps them"
            .to_owned()
    });
    Some(BackendSetting { name: "queue backlog".to_owned(), value: found.describe(venue.now(), OWNERS_NAMED), problem })
}

/// Describes whether one owner can fill a store that has a limit.
async fn quota_setting(venue: &Venue) -> BackendSetting {
    let quota = venue.quota().await;
    let limited = venue.store_fill().await.limit.is_some();
    let named = QuotaKind::ALL.into_iter().filter(|kind| quota.get(*kind) > 0);
    let named = named.map(|kind| format!("{} {}", quota.get(kind), kind.as_str()));
    let users = venue.quota.tenant_users.general;
    let users = (users > 0).then(|| format!("{users} users of a tenant"));
    let words: Vec<_> = named.chain(users).collect();
    let value = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    let problem = (limited && quota.bytes == 0).then(|| {
        "one owner can fill the store for all others; set `quota.bytes`, unless there is only one owner".to_owned()
    });
    BackendSetting { name: "quota of an owner".to_owned(), value, problem }
}

/// Describes how far this machine's clock is from those of the servers.
async fn clock_setting(venue: &Venue) -> Result<BackendSetting, StoreError> {
    let report = clocks::compare(venue).await?;
    let problem = report.is_far().then(|| {
        "set the clocks by NTP: a worker whose clock is farther from the store's than `worker.clock_limit` begins nothing"
            .to_owned()
    });
    Ok(BackendSetting { name: "clock of this machine".to_owned(), value: report.to_string(), problem })
}

/// Describes whether the store still has what the queue knows of it.
async fn history_setting(venue: &Venue) -> Result<(Option<BackendSetting>, bool), AuditError> {
    if venue.bus.witness().is_none() {
        return Ok((None, false));
    }
    let set_backs = audit::set_backs(venue).await?;
    let unsettled = audit::is_unsettled(venue, &set_backs).await?;
    let value = match set_backs.first() {
        None if unsettled => "changes were lost; `trellis audit --after-loss` lists them".to_owned(),
        None => "never set back".to_owned(),
        Some(found) => found.to_string(),
    };
    let problem = unsettled.then(|| {
        "what was accepted in between is lost; `trellis audit --after-loss` lists it, `trellis audit --settle` says that \
         it is dealt with"
            .to_owned()
    });
    Ok((Some(BackendSetting { name: "store history".to_owned(), value, problem }), unsettled))
}

/// Removes the problem of streams that were made again before an operator's last settlement; returns whether there are
/// others. The value of such a setting is the time at which the stream was made.
async fn settle_streams(venue: &Venue, bus: &mut [BackendSetting]) -> Result<bool, AuditError> {
    let mut unsettled = false;
    for setting in bus.iter_mut().filter(|setting| setting.name.starts_with(STREAM_MADE_AGAIN)) {
        let settled = audit::read_settlement(venue).await?;
        let made = Millis::parse(&setting.value);
        if let Some(settled) = settled.filter(|settled| made.is_some_and(|made| made < settled.at)) {
            setting.value = format!("{}, settled at {} by `{}`", setting.value, settled.at.rfc3339(), settled.by);
            setting.problem = None;
        } else {
            unsettled = true;
            let settle = "`trellis audit --settle` says that it is dealt with";
            setting.problem = setting.problem.take().map(|problem| format!("{problem}; {settle}"));
        }
    }
    Ok(unsettled)
}

/// Describes how far the journal of this process is behind.
fn journal_setting(venue: &Venue) -> Option<BackendSetting> {
    venue.bus.witness()?;
    // Only a process that changes something has waiting entries.
    let lag = venue.history.journal().map(|journaled| journaled.lag(venue.now()));
    let is_behind = lag.is_some_and(|lag| lag > Duration::from_secs(2));
    let now = lag.map(|lag| format!("; this process's is {} ms", lag.as_millis())).unwrap_or_default();
    let value = format!("at most a second behind the store's answers{now}");
    let problem = is_behind.then(|| {
        "the queue doesn't take the journal of changes: what the store loses now is named by living processes alone"
            .to_owned()
    });
    Some(BackendSetting { name: "store journal".to_owned(), value, problem })
}

impl Examination {
    /// Returns the number of broken guarantees.
    pub fn count_broken(&self) -> usize {
        self.verdicts.iter().filter(|(_, _, verdict)| *verdict == GuaranteeVerdict::Broken).count()
    }

    /// Returns what to change, one line per setting that affects a guarantee; with `all` also for the others.
    pub fn advice(&self, all: bool) -> Vec<String> {
        let matters = |reach: &[u8]| all || !reach.is_empty();
        let lines = self.settings.iter().filter(|(_, reach)| matters(reach));
        lines.filter_map(|(s, _)| advice_line(s)).collect()
    }

    /// Returns the settings that break a guarantee, by name, each with what to change.
    pub fn wrong_settings(&self) -> BTreeMap<String, String> {
        breaking_settings(self.settings.iter().cloned())
    }

    /// Returns the answer of `trellis doctor`.
    pub fn view(&self) -> DoctorView {
        let settings = self.settings.iter().map(|(setting, reach)| SettingView {
            name: setting.name.clone(),
            value: setting.value.clone(),
            state: setting_state(setting).to_owned(),
            problem: setting.problem.clone(),
            guarantees: reach.to_vec(),
        });
        let guarantees = self.verdicts.iter().map(|(number, text, verdict)| GuaranteeView {
            number: *number,
            text: (*text).to_owned(),
            verdict: verdict.as_str().to_owned(),
        });
        DoctorView {
            settings: settings.collect(),
            guarantees: guarantees.collect(),
            broken: self.count_broken(),
            unsettled: self.unsettled,
            advice: self.advice(true),
        }
    }
}

/// Describes a setting and what to change; `None` if it is right.
fn advice_line(setting: &BackendSetting) -> Option<String> {
    Some(format!("{} is `{}`: {}", setting.name, setting.value, setting.problem.as_ref()?))
}

/// Returns each setting with the guarantees that its problem affects.
fn with_reach(
    settings: Vec<BackendSetting>,
    default: &'static [u8],
) -> impl Iterator<Item = (BackendSetting, &'static [u8])> {
    settings.into_iter().map(move |setting| {
        let before = |mark: &str| setting.name.split_once(mark).map_or(setting.name.as_str(), |(kind, _)| kind);
        let names = [setting.name.as_str(), before(" of "), before(" at ")];
        let reach = REACH.iter().find(|(name, _)| names.contains(name)).map_or(default, |(_, reach)| reach);
        (setting, reach)
    })
}

fn judge(guarantee: u8, settings: &[(BackendSetting, &[u8])]) -> GuaranteeVerdict {
    let mut verdict = GuaranteeVerdict::Holds;
    for (setting, reach) in settings {
        if setting.problem.is_none() || !reach.contains(&guarantee) {
            continue;
        }
        if !is_undisclosed(setting) {
            return GuaranteeVerdict::Broken;
        }
        verdict = GuaranteeVerdict::Unknown;
    }
    verdict
}

fn is_undisclosed(setting: &BackendSetting) -> bool {
    UNDISCLOSED.contains(&setting.value.as_str())
}

fn setting_state(setting: &BackendSetting) -> &'static str {
    match &setting.problem {
        None => "ok",
        Some(_) if is_undisclosed(setting) => "unknown",
        Some(_) => "problem",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str, problem: bool, default: &'static [u8], expected: [GuaranteeVerdict; 2]) {
        let problem = problem.then(|| "change it".to_owned());
        let setting = BackendSetting { name: name.into(), value: value.into(), problem };
        let settings: Vec<_> = with_reach(vec![setting], default).collect();
        assert_eq!([judge(1, &settings), judge(2, &settings)], expected, "{name} {value}");
    }

    #[test]
    fn a_problem_breaks_what_rests_on_its_setting() {
        use GuaranteeVerdict::{Broken, Holds, Unknown};
        check("redis appendfsync", "always", false, DURABLE, [Holds, Holds]);
        check("redis appendfsync", "everysec", true, DURABLE, [Broken, Broken]);
        check("redis appendfsync", "unknown", true, DURABLE, [Unknown, Unknown]);
        check("redis save", "3600 1", true, DURABLE, [Holds, Holds]);
        check("nats sync_interval", "not shown to clients", true, QUEUED, [Unknown, Holds]);
        check("nats replicas of TRELLIS", "1: `a` leads", true, QUEUED, [Holds, Holds]);
        check("nats stream size", "9 of 10 bytes", true, QUEUED, [Holds, Holds]);
        check("nats stream made again of TRELLIS", "2026-01-01T00:00:00Z", true, QUEUED, [Holds, Holds]);
        check("embedded fsync", "off", true, DURABLE, [Broken, Broken]);
    }
}
