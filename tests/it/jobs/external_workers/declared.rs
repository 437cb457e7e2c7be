//! Jobs that an agent's file declares: their input, and the schema of their output.

use super::{Office, code, output};
use serde_json::{Value, json};
use trellis::domain::job::JobStatus;

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_declared_job_must_fit_its_schema() {
    let input = json!({"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]});
    let jobs = json!({"queue": "ocr", "output": {"type": "object", "required": ["text"]}, "wait": 0});
    let ocr = json!({"name": "ocr", "description": "Reads a scan.", "input": input, "jobs": jobs});
    for (given, status, error, told) in [
        (json!({"text": "Invoice 17"}), JobStatus::Complete, Value::Null, "the worker is done"),
        (json!({"txt": "s3cret"}), JobStatus::Failed, json!("OUTPUT_INVALID"), "the worker is not done"),
    ] {
        let Some(office) = Office::open().await else { return };
        office.venue.agent("reader", json!({"tools": [ocr], "defaultTools": false})).await;
        let asked = office.venue.submit("reader", "t1", json!("go")).await.job.unwrap();
        let taken = office.take("ocr").await;
        assert_eq!(taken.body["input"], json!({"file": "a.pdf"}));
        office.rests(&asked).await;
        office.say(&taken, json!({"status": "COMPLETE", "output": given})).await;
        assert_eq!(output(&office.venue.ended(&asked).await), told);
        let job = office.job(&taken.job).await;
        assert_eq!((job.status, code(&job)), (status, error), "{given}");
        assert!(!job.result.unwrap().error.unwrap_or_default().contains("s3cret"), "{given}");
        let turns = office.venue.turns("reader", office.job(&asked).await.head.session.as_str()).await;
        assert_eq!(turns[0].calls[0].operation, "v/ops/jobs/ocr");
        office.books_are_closed().await;
    }
}
