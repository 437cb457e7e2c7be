//! Grants of requests: their rules, protected boundaries, intersection and narrowing.

use super::mutate::{self, Random};
use super::paths::is_clean;
use super::{Target, Verdict};
use crate::support::operate::on;
use serde_json::{Value, json};
use trellis::domain::authority::grant::{self, Boundary, BoundaryError};
use trellis::domain::authority::{Authority, Capability, capability};

/// Abilities that are asked.
const ASKED: [&str; 6] = ["crud/read", "crud/write", "crud/append", "agent/request", "http/get", "read"];

type Check = fn(&str, &mut Random) -> Result<Verdict, String>;

pub fn target() -> Target<Check> {
    let request = |grants: Value, parent: Value, boundaries: &[&str]| {
        json!({"grants": grants, "parent": parent, "boundaries": boundaries}).to_string()
    };
    let cap = |with: &str, can: &str| json!({"with": with, "can": can});
    let seeds = vec![
        request(json!(["app/user/u_123"]), json!([cap("r/app/user", "*")]), &["app/user"]),
        request(json!(["app/user/u1/x", "app/user/u1"]), json!(["app/user/u1"]), &["app/user:min=2:ancestor"]),
        request(json!([cap("w/vendor", "crud/read")]), json!([cap("w", "crud"), cap("r/a", "*")]), &[]),
        request(json!([cap("w/vendor/", "crud")]), json!([cap("w/vendor/acme", "crud/write")]), &["a:boundary"]),
        request(json!([cap("https://api.example/v1", "http/get")]), json!([cap("https://api.example/", "http")]), &[]),
        request(json!([cap("", "*"), "a/b"]), json!([cap("", "crud/write"), "a"]), &["app/user:boundary"]),
        request(json!([cap("r", "read")]), json!([]), &["app:ancestor"]),
        request(json!([cap("g/a/n/x", "crud/append")]), json!([cap("g/a", "crud/write"), cap("n", "crud")]), &[]),
        request(json!([]), json!([cap("w", "*")]), &[]),
        request(json!(["app/../user", "*", " a", "a/"]), json!([cap("w/../s", "crud")]), &["/a", "app:min=x"]),
        request(json!([cap("r//app/user", "*"), cap("w/e\u{301}", "crud/*")]), json!([7, null]), &["app/user:min=0"]),
    ];
    Target { name: "grants", seeds, mutate: mutate::json, check }
}

fn refused(rule: &str) -> Verdict {
    Verdict::Refused(rule.to_owned())
}

fn check(input: &str, random: &mut Random) -> Result<Verdict, String> {
    let document: Value = match serde_json::from_str(input) {
        Ok(document) => document,
        Err(_) => return Ok(refused("no JSON")),
    };
    let list = |key: &str| document[key].as_array().cloned();
    let (Some(grants), Some(parent), Some(boundaries)) = (list("grants"), list("parent"), list("boundaries")) else {
        return Ok(refused("no lists"));
    };
    let boundaries: Result<Vec<Boundary>, BoundaryError> =
        boundaries.iter().map(|text| Boundary::parse(text.as_str().unwrap_or("?:?"))).collect();
    let boundaries = match boundaries {
        Ok(boundaries) => boundaries,
        Err(error) => return Ok(refused(&error.to_string())),
    };
    let caps = match grant::parse(&grants, &boundaries) {
        Ok(caps) => caps,
        Err(error) => return Ok(refused(&error.rule.to_string())),
    };
    caps.iter().try_for_each(|cap| rules_are_kept(cap, &boundaries))?;
    let printed: Vec<Value> = caps.iter().map(|cap| json!(cap)).collect();
    if grant::parse(&printed, &boundaries).as_ref() != Ok(&caps) {
        return Err(format!("printed and read again it is another: {printed:?}"));
    }
    let Ok(parent) = grant::parse(&parent, &[]) else { return Ok(refused("the parent's")) };
    never_widens(&parent, &caps, random)?;
    Ok(Verdict::Accepted)
}

fn segments(with: &str) -> Vec<&str> {
    let with = with.strip_suffix('/').unwrap_or(with);
    if with.is_empty() { Vec::new() } else { with.split('/').collect() }
}

/// What every accepted grant is, said a second time.
fn rules_are_kept(cap: &Capability, boundaries: &[Boundary]) -> Result<(), String> {
    let parts = segments(&cap.with);
    // `https://host` is the one place for an empty segment.
    let with_scheme = parts.len() > 2 && parts[0].len() > 1 && parts[0].ends_with(':') && parts[1].is_empty();
    let legal = |(at, part): (usize, &&str)| (is_clean(part) && *part != "*") || (with_scheme && at == 1);
    if !parts.iter().enumerate().all(legal) {
        return Err(format!("a grant on {:?} was accepted", cap.with));
    }
    if cap.can != "*" && segments(&cap.can).iter().any(|part| !is_clean(part) || part.contains(['*', ' '])) {
        return Err(format!("the ability {:?} was accepted", cap.can));
    }
    if parts.first() != Some(&"r") {
        return Ok(());
    }
    if cap.with.contains(char::is_whitespace) || cap.with.contains(['*', '>']) {
        return Err(format!("a grant of the namespace {:?} was accepted", cap.with));
    }
    for boundary in boundaries {
        let (granted, protected) = (&parts[1..], segments(&boundary.namespace));
        let allowed = if granted == protected {
            boundary.allow_boundary
        } else if protected.starts_with(granted) {
            boundary.allow_ancestor
        } else {
            !granted.starts_with(&protected) || granted.len() - protected.len() >= boundary.min_descendants
        };
        if !allowed {
            return Err(format!("{:?} was granted in spite of {boundary:?}", cap.with));
        }
    }
    Ok(())
}

/// Ability and name under a capability, by lists of segments.
pub fn says(cap: &Capability, ability: &str, name: &str) -> bool {
    let able = cap.can == "*"
        || segments(ability).starts_with(&segments(&cap.can))
        || (cap.can == "crud/write" && ability == "crud/append");
    able && segments(name).starts_with(&segments(&cap.with))
}

fn is_resource(name: &str) -> bool {
    segments(name).first() == Some(&"r")
}

/// What a list permits: it limits only the dimensions that it mentions, `[]` all.
fn permits(list: &[Capability], ability: &str, name: &str) -> bool {
    let mut alike = list.iter().filter(|cap| is_resource(&cap.with) == is_resource(name)).peekable();
    // Of resources only what is named is held.
    (alike.peek().is_none() && !list.is_empty() && !is_resource(name)) || alike.any(|cap| says(cap, ability, name))
}

/// Names at, under, above and beside what the lists name.
fn names(lists: [&[Capability]; 2], random: &mut Random) -> Vec<String> {
    let mut names = vec!["w".to_owned(), "r/app/user".to_owned(), "g/a/n".to_owned()];
    for cap in lists.into_iter().flatten().take(24) {
        let with = cap.with.strip_suffix('/').unwrap_or(&cap.with);
        names.push(with.to_owned());
        names.push(if with.is_empty() { "w/x".to_owned() } else { format!("{with}/x") });
        names.push(format!("{with}x"));
        let cut: Vec<char> = with.chars().collect();
        names.push(cut[..random.below(cut.len() + 1)].iter().collect());
        names.push(with.rsplit_once('/').map_or(String::new(), |(above, _)| above.to_owned()));
    }
    // Held by everybody, without a place nobody's.
    let always = |name: &String| ["c", "t", "v"].contains(&segments(name).first().copied().unwrap_or_default());
    let legal = |name: &String| Capability { with: name.clone(), can: "*".into() }.check().is_ok();
    names.retain(|name| !always(name) && !name.ends_with('/') && legal(name));
    names
}

fn never_widens(parent: &[Capability], caps: &[Capability], random: &mut Random) -> Result<(), String> {
    let holds = |list: &[Capability]| Authority::new(Some(list.to_vec()));
    let (above, own) = (holds(parent), holds(caps));
    let (both, within) = (above.intersect(&own), above.limit_to(&own));
    let child = grant::narrow(&above, caps);
    for name in names([parent, caps], random) {
        for ability in ASKED {
            let asked = format!("`{ability}` on {name:?} of {parent:?} and {caps:?}");
            let is = |authority: &Authority| authority.permits(ability, on(&name)).is_ok();
            let (of_parent, of_caps) = (permits(parent, ability, &name), permits(caps, ability, &name));
            if is(&above) != of_parent || is(&own) != of_caps {
                return Err(format!("the oracle says otherwise of {asked}"));
            }
            // A list that doesn't mention resources doesn't limit them either.
            let silent = |list: &[Capability]| {
                is_resource(&name) && !list.is_empty() && !list.iter().any(|cap| is_resource(&cap.with))
            };
            let most = (of_parent || silent(parent)) && (of_caps || silent(caps)) && (of_parent || of_caps);
            if is(&both) != most {
                return Err(format!("the intersection permits another than {most} for {asked}"));
            }
            if is(&within) && !of_parent {
                return Err(format!("within a limit there is more: {asked}"));
            }
            if child.as_ref().is_ok_and(|child| is(child) && !of_parent) {
                return Err(format!("a child has more than its parent: {asked}"));
            }
        }
    }
    for (a, b) in parent.iter().flat_map(|a| caps.iter().map(move |b| (a, b))) {
        let cover = segments(&b.with).starts_with(&segments(&a.with));
        if capability::covers(&a.with, &b.with) != cover {
            return Err(format!("{:?} and {:?} cover each other wrongly", a.with, b.with));
        }
        if a.intersect(b) != b.intersect(a) && a.with.trim_end_matches('/') != b.with.trim_end_matches('/') {
            return Err(format!("the intersection of `{a}` and `{b}` depends on their order"));
        }
    }
    Ok(())
}
