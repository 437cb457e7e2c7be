//! Readers of jobs, and how much they see. The caller of a job reads all of it; other readers see its input and output
//! only if they could have read the sources themselves.

use crate::authority::{Authority, ResourcePath};
use crate::ids::AgentId;
use crate::job::{Job, JobHead};
use crate::session::WITHHELD;
use serde_json::{Value, json};

/// Keys of a job's record that hold input or output.
const VEILED: [&str; 4] = ["input", "output", "error", "waiting"];

/// Key of a record that says that parts are left out.
pub const HIDDEN: &str = "hidden";

/// Whether this part of a record is left out for a reader who sees only the status of a job.
pub fn is_veiled(key: &str) -> bool {
    VEILED.contains(&key)
}

/// A reader of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// Authority of the reader.
    pub authority: Authority,
    /// Mark by which the reader's own jobs are known.
    pub mark: Option<String>,
    /// Whether the reader is an operator, who reads everything.
    pub operator: bool,
}

/// Extent to which a reader sees a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSight {
    /// All of the record.
    Whole,
    /// Its existence and its status.
    Veiled,
    /// Not even its existence.
    Nothing,
}

impl Reader {
    /// Returns how much of a job the reader sees.
    pub fn sees(&self, head: &JobHead) -> JobSight {
        // A revocation also applies to the caller who requested the job.
        let asked = self.mark.is_some()
            && self.mark == head.principal
            && !self.authority.is_revoked(ResourcePath::job(&head.id));
        let own = self.authority.home().job.as_ref() == Some(&head.id);
        if self.operator || asked || own {
            return JobSight::Whole;
        }
        if self.authority.permits("crud/read", ResourcePath::job(&head.id)).is_err() {
            return JobSight::Nothing;
        }
        // The bound of old jobs is unknown, so it counts as unlimited.
        let bound = head.authority().cloned().unwrap_or_default();
        if self.authority.covers_reading(&bound) { JobSight::Whole } else { JobSight::Veiled }
    }

    /// Whether the reader may read the records of this agent.
    pub fn reads_agent(&self, agent: &AgentId) -> bool {
        self.operator || self.authority.permits("crud/read", ResourcePath::agent(agent)).is_ok()
    }

    /// Returns a job's record as the reader sees it.
    pub fn record(&self, job: &Job) -> Value {
        let mut record = job.to_json();
        if self.sees(&job.head) != JobSight::Whole
            && let Some(map) = record.as_object_mut()
        {
            map.retain(|key, _| !is_veiled(key));
            map.insert(HIDDEN.to_owned(), json!(WITHHELD));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Capability;
    use crate::ids::JobId;
    use crate::job::{JobResult, JobStatus};
    use crate::lattice::layout::Scope;
    use crate::time::Millis;

    const ID: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

    fn job(bound: Option<&[(&str, &str)]>) -> Job {
        let session = crate::invoked::session(&ID.parse().unwrap());
        let bound = bound.map(authority);
        let head = json!({
            "id": ID, "event": "e", "op": "v/ops/x", "agent": session.agent, "session": session.session,
            "input": "given", "created": 5, "principal": "ann", "bound": bound,
        });
        let head: JobHead = serde_json::from_value(head).unwrap();
        let result = Some(JobResult::complete(json!("came out")));
        Job {
            head,
            status: JobStatus::Complete,
            updated: Millis(6),
            result,
            waiting: None,
            wait: None,
            outbound: None,
            tally: None,
            tree: None,
        }
    }

    fn authority(caps: &[(&str, &str)]) -> Authority {
        Authority::new(Some(
            caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect(),
        ))
    }

    fn reader(caps: &[(&str, &str)], mark: Option<&str>) -> Reader {
        Reader { authority: authority(caps), mark: mark.map(str::to_owned), operator: false }
    }

    #[test]
    fn who_asked_reads_it_and_others_what_they_could_have_read() {
        let of_a: &[(&str, &str)] = &[("w/a", "crud")];
        let everything: &[(&str, &str)] = &[("", "*")];
        let all = |mark: Option<&str>| Reader { authority: Authority::unlimited(), ..reader(&[], mark) };
        for (reader, bound, expected) in [
            (reader(&[], Some("ann")), Some(of_a), JobSight::Whole),
            (reader(&[], Some("bob")), Some(of_a), JobSight::Nothing),
            (reader(&[], None), Some(of_a), JobSight::Nothing),
            (reader(&[("w", "crud/read")], Some("bob")), Some(of_a), JobSight::Nothing),
            (reader(&[("j", "crud/read")], Some("bob")), Some(of_a), JobSight::Veiled),
            (reader(&[("j", "crud/read"), ("w/b", "crud/read")], None), Some(of_a), JobSight::Veiled),
            (reader(&[("j", "crud/read"), ("w", "crud/read")], None), Some(of_a), JobSight::Whole),
            (reader(&[(&format!("j/{ID}"), "crud/read"), ("w/a", "crud/read")], None), Some(of_a), JobSight::Whole),
            (reader(&[("j", "crud/read"), ("w", "crud/read")], None), Some(everything), JobSight::Veiled),
            (reader(&[("j", "crud/read"), ("w", "crud/read")], None), None, JobSight::Veiled),
            (all(None), None, JobSight::Whole),
            (all(Some("bob")), Some(everything), JobSight::Whole),
            (all(None), Some(of_a), JobSight::Whole),
        ] {
            assert_eq!(reader.sees(&job(bound).head), expected, "{reader:?} {bound:?}");
            let operator = Reader { operator: true, ..reader };
            assert_eq!(operator.sees(&job(bound).head), JobSight::Whole);
        }
    }

    #[test]
    fn a_job_that_was_revoked_is_read_by_nobody_who_asked_for_it() {
        let asked = Reader { authority: Authority::unlimited(), ..reader(&[], Some("ann")) };
        let id = JobId::new(ID).unwrap();
        for (gone, expected) in [
            (ResourcePath::job(&id), JobSight::Nothing),
            (ResourcePath::job(&JobId::new(&"1".repeat(32)).unwrap()), JobSight::Whole),
        ] {
            let reader = Reader { authority: asked.authority.clone().without(gone), ..asked.clone() };
            assert_eq!(reader.sees(&job(Some(&[("w/a", "crud")])).head), expected);
        }
    }

    #[test]
    fn a_turn_reads_its_own_job() {
        let home = Scope { session: None, job: Some(JobId::new(ID).unwrap()) };
        let turn = Reader { authority: authority(&[]).at(&home), mark: None, operator: false };
        assert_eq!(turn.sees(&job(None).head), JobSight::Whole);
    }

    #[test]
    fn what_is_left_out_is_marked() {
        let veiled = reader(&[("j", "crud/read")], None).record(&job(None));
        assert_eq!((&veiled["status"], &veiled["op"]), (&json!("COMPLETE"), &json!("v/ops/x")));
        assert_eq!(veiled["hidden"], WITHHELD);
        assert!(!veiled.to_string().contains("given") && !veiled.to_string().contains("came out"), "{veiled}");
        let whole = reader(&[], Some("ann")).record(&job(None));
        assert_eq!(
            (&whole["input"], &whole["output"], whole.get("hidden")),
            (&json!("given"), &json!("came out"), None)
        );
    }
}
