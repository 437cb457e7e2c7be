//! Subjects of alarms: `<prefix>.sched.…` until the time of the timer, then `<prefix>.due.…`.

use super::{decode, owner_tokens};
use crate::domain::ids::{Owner, OwnerPart};
use crate::domain::timer::TimerId;

/// Returns the subject of a timer's future alarm.
pub fn future_alarm(prefix: &str, owner: &Owner, timer: &TimerId) -> String {
    format!("{prefix}.sched.{}.{timer}", owner_tokens(owner))
}

/// Returns the subject of a timer's ringing alarm.
pub fn ringing_alarm(prefix: &str, owner: &Owner, timer: &TimerId) -> String {
    format!("{prefix}.due.{}.{timer}", owner_tokens(owner))
}

/// Returns the pattern of all future alarms.
pub fn all_scheduled(prefix: &str) -> String {
    format!("{prefix}.sched.>")
}

/// Returns the pattern of all ringing alarms.
pub fn all_due(prefix: &str) -> String {
    format!("{prefix}.due.>")
}

/// Returns owner and timer of a subject made by [`ringing_alarm`].
pub fn parse_due(prefix: &str, subject: &str) -> Option<(Owner, TimerId)> {
    let tokens: Vec<&str> = subject.strip_prefix(prefix)?.strip_prefix(".due.")?.split('.').collect();
    let [tenant, user, timer] = tokens[..] else { return None };
    let part = |token: &str| OwnerPart::new(decode(token)?).ok();
    Some((Owner::new(part(tenant)?, part(user)?), TimerId::new(timer).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &str) -> Owner {
        text.parse().unwrap()
    }

    #[test]
    fn subjects_of_alarms_round_trip() {
        for o in ["acme/jo", "a.b/c>d", "100%/x"] {
            let (owner, timer) = (owner(o), TimerId::from_text(o));
            assert_eq!(
                parse_due("p", &ringing_alarm("p", &owner, &timer)),
                Some((owner.clone(), timer.clone())),
                "{o}"
            );
            assert_eq!(parse_due("p", &future_alarm("p", &owner, &timer)), None, "{o}");
        }
        let (owner, timer) = (owner("acme/jo@x.org"), TimerId::from_text("t"));
        assert_eq!(future_alarm("p", &owner, &timer), format!("p.sched.acme.jo@x%2Eorg.{timer}"));
        for text in ["p.due.a.b", "p.due.a.b.c", "p.due.a.b.c.d", "q.due.a.b.00000000000000000000000000000000"] {
            assert_eq!(parse_due("p", text), None, "{text}");
        }
    }
}
