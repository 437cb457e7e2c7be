//! Readers of jobs, and how much they see. The caller of a job reads all of it; other readers see its input and output
//! only if they could have read the sources themselves.

use crate::authority::{Authority, ResourcePath};
use crate::ids::AgentId;
use crate::job::JobHead;

/// Keys of a job's record that hold input or output.
const CONTENT_KEYS: [&str; 4] = ["input", "output", "error", "waiting"];

/// Key of a record that says that parts are left out.
pub const HIDDEN_KEY: &str = "hidden";

/// Whether this part of a record is left out for a reader who sees only the status of a job.
pub fn is_content_key(key: &str) -> bool {
    CONTENT_KEYS.contains(&key)
}

/// A reader of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReader {
    /// Authority of the reader.
    pub authority: Authority,
    /// Mark by which the reader's own jobs are known.
    pub mark: Option<String>,
    /// Whether the reader is an operator, who reads everything.
    pub operator: bool,
}

/// Extent to which a reader sees a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobVisibility {
    /// All of the record.
    Whole,
    /// Its existence and its status.
    StatusOnly,
    /// Not even its existence.
    Nothing,
}

impl JobReader {
    /// Returns how much of a job the reader sees.
    pub fn visibility(&self, head: &JobHead) -> JobVisibility {
        // A revocation also applies to the caller who requested the job.
        let asked = self.mark.is_some()
            && self.mark == head.principal
            && !self.authority.is_revoked(ResourcePath::job(&head.id));
        let own = self.authority.home().job.as_ref() == Some(&head.id);
        if self.operator || asked || own {
            return JobVisibility::Whole;
        }
        if self.authority.permits("crud/read", ResourcePath::job(&head.id)).is_err() {
            return JobVisibility::Nothing;
        }
        // The bound of old jobs is unknown, so it counts as unlimited.
        let bound = head.authority().cloned().unwrap_or_default();
        if self.authority.covers_reading(&bound) { JobVisibility::Whole } else { JobVisibility::StatusOnly }
    }

    /// Whether the reader may read the records of this agent.
    pub fn may_read_agent(&self, agent: &AgentId) -> bool {
        self.operator || self.authority.permits("crud/read", ResourcePath::agent(agent)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Capability;
    use crate::ids::JobId;
    use crate::lattice::layout::Scope;
    use serde_json::json;

    const ID: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

    fn head(bound: Option<&[(&str, &str)]>) -> JobHead {
        let session = crate::invocation::session(&ID.parse().unwrap());
        let bound = bound.map(authority);
        let head = json!({
            "id": ID, "event": "e", "op": "v/ops/x", "agent": session.agent, "session": session.session,
            "input": "given", "created": 5, "principal": "ann", "bound": bound,
        });
        serde_json::from_value(head).unwrap()
    }

    fn authority(caps: &[(&str, &str)]) -> Authority {
        Authority::new(Some(
            caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect(),
        ))
    }

    fn reader(caps: &[(&str, &str)], mark: Option<&str>) -> JobReader {
        JobReader { authority: authority(caps), mark: mark.map(str::to_owned), operator: false }
    }

    #[test]
    fn a_requester_reads_its_job_others_what_they_may_read() {
        let of_a: &[(&str, &str)] = &[("w/a", "crud")];
        let everything: &[(&str, &str)] = &[("", "*")];
        let all = |mark: Option<&str>| JobReader { authority: Authority::without_limits(), ..reader(&[], mark) };
        for (reader, bound, expected) in [
            (reader(&[], Some("ann")), Some(of_a), JobVisibility::Whole),
            (reader(&[], Some("bob")), Some(of_a), JobVisibility::Nothing),
            (reader(&[], None), Some(of_a), JobVisibility::Nothing),
            (reader(&[("w", "crud/read")], Some("bob")), Some(of_a), JobVisibility::Nothing),
            (reader(&[("j", "crud/read")], Some("bob")), Some(of_a), JobVisibility::StatusOnly),
            (reader(&[("j", "crud/read"), ("w/b", "crud/read")], None), Some(of_a), JobVisibility::StatusOnly),
            (reader(&[("j", "crud/read"), ("w", "crud/read")], None), Some(of_a), JobVisibility::Whole),
            (
                reader(&[(&format!("j/{ID}"), "crud/read"), ("w/a", "crud/read")], None),
                Some(of_a),
                JobVisibility::Whole,
            ),
            (reader(&[("j", "crud/read"), ("w", "crud/read")], None), Some(everything), JobVisibility::StatusOnly),
            (reader(&[("j", "crud/read"), ("w", "crud/read")], None), None, JobVisibility::StatusOnly),
            (all(None), None, JobVisibility::Whole),
            (all(Some("bob")), Some(everything), JobVisibility::Whole),
            (all(None), Some(of_a), JobVisibility::Whole),
        ] {
            assert_eq!(reader.visibility(&head(bound)), expected, "{reader:?} {bound:?}");
            let operator = JobReader { operator: true, ..reader };
            assert_eq!(operator.visibility(&head(bound)), JobVisibility::Whole);
        }
    }

    #[test]
    fn a_job_that_was_revoked_is_read_by_nobody_who_asked_for_it() {
        let asked = JobReader { authority: Authority::without_limits(), ..reader(&[], Some("ann")) };
        let id = JobId::new(ID).unwrap();
        for (gone, expected) in [
            (ResourcePath::job(&id), JobVisibility::Nothing),
            (ResourcePath::job(&JobId::new(&"1".repeat(32)).unwrap()), JobVisibility::Whole),
        ] {
            let reader = JobReader { authority: asked.authority.clone().except_resource(gone), ..asked.clone() };
            assert_eq!(reader.visibility(&head(Some(&[("w/a", "crud")]))), expected);
        }
    }

    #[test]
    fn a_turn_reads_its_own_job() {
        let home = Scope { session: None, job: Some(JobId::new(ID).unwrap()) };
        let turn = JobReader { authority: authority(&[]).bind_home(&home), mark: None, operator: false };
        assert_eq!(turn.visibility(&head(None)), JobVisibility::Whole);
    }
}
