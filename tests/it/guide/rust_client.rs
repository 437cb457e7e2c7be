//! Submits over NATS, and waits, cancels and approves over HTTP.

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use serde_json::{Value, json};
use std::error::Error;

/// Submits a task under an id of the caller's own, on a subject such as `trellis.do.local.me.helper.task`. Returns its job.
pub async fn submit(nats: &Client, subject: &str, id: &str, input: &Value) -> Result<String, Box<dyn Error>> {
    let mut headers = HeaderMap::new();
    headers.insert("Trellis-Id", id);
    let body = Bytes::from(json!({"input": input}).to_string());
    let answer = nats.request_with_headers(subject.to_owned(), headers, body).await?;
    let receipt: Value = serde_json::from_slice(&answer.payload)?;
    let job = receipt["job"].as_str().ok_or_else(|| receipt["error"]["description"].to_string())?;
    Ok(job.to_owned())
}

/// Waits for the end of a job. Returns its record; `api` is such as `http://127.0.0.1:8420/api/v1`.
pub async fn wait(api: &str, job: &str) -> Result<Value, Box<dyn Error>> {
    loop {
        let answer = reqwest::get(format!("{api}/jobs/{job}?wait=30000")).await?;
        let record: Value = answer.error_for_status()?.json().await?;
        if ["COMPLETE", "FAILED", "CANCELLED", "REJECTED"].iter().any(|end| record["status"] == *end) {
            return Ok(record);
        }
    }
}

/// Cancels a job. Returns its record.
pub async fn cancel(api: &str, job: &str) -> Result<Value, Box<dyn Error>> {
    let order = reqwest::Client::new().put(format!("{api}/jobs/{job}/cancel"));
    let answer = order.json(&json!({"reason": "no longer needed"})).send().await?;
    Ok(answer.error_for_status()?.json().await?)
}

/// Approves the call that a job waits for. Returns false while it waits for none.
pub async fn approve(api: &str, job: &str) -> Result<bool, Box<dyn Error>> {
    let page: Value = reqwest::get(format!("{api}/approvals")).await?.error_for_status()?.json().await?;
    let asked = page["items"].as_array().into_iter().flatten().find(|item| item["job"] == job);
    let Some(asked) = asked else { return Ok(false) };
    let id = asked["id"].as_str().unwrap_or_default();
    let body = json!({"approve": {}, "digest": asked["digest"]});
    let answer = reqwest::Client::new().post(format!("{api}/approvals/{id}")).json(&body).send().await?;
    answer.error_for_status()?;
    Ok(true)
}
