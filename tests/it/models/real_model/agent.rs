//! An agent with a typed output that thinks with the real model, through the public binary.

use crate::support::cli::Up;
use crate::support::real_model::JudgedModel;
use serde_json::Value;

const AGENT: &str = r#"
systemPrompt = "Extract the vendor and the amount of the invoice."
model = { provider = "llamacpp", name = "smol", temperature = 0.0, maxTokens = 60 }
defaultTools = false
[outputs.complete.schema]
type = "object"
required = ["vendor", "amount"]
additionalProperties = false
properties = { vendor = { type = "string" }, amount = { type = "integer" } }
"#;
const VENDORS: [&str; 10] =
    ["Acme", "Globex", "Initech", "Umbrella", "Hooli", "Soylent", "Stark", "Wayne", "Tyrell", "Cyberdyne"];

/// `TRELLIS_INVOICES=20` reads as many as are read without an agent in between.
fn invoices() -> Vec<(&'static str, usize)> {
    let number = std::env::var("TRELLIS_INVOICES").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    (0..number).map(|at| (VENDORS[at % VENDORS.len()], 100 + 37 * at)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_model_completes_tasks_by_texts_of_their_type() {
    let Some(model) = JudgedModel::get().await else { return };
    let url = format!("models.endpoints.llamacpp.base_url={}", model.url("/v1"));
    let invoices = invoices();
    let asked = invoices.clone();
    let outputs = tokio::task::spawn_blocking(move || {
        let up = Up::start_with(&[&url]);
        up.file("reader.toml", AGENT);
        up.run(&["agent", "apply", "reader.toml"]).ok();
        let read = |(vendor, amount): &(&str, usize)| {
            let text = format!("The invoice is for {amount} EUR from {vendor}.");
            let job = up.run(&["submit", "reader", &text]).ok();
            let ended = up.run(&["job", "wait", &job, "--timeout", "120s", "--output", "json"]);
            serde_json::from_str::<Value>(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
        };
        asked.iter().map(read).collect::<Vec<_>>()
    });
    let outputs = outputs.await.unwrap();
    let (mut valid, mut right) = (0, 0);
    for ((vendor, amount), job) in invoices.iter().zip(&outputs) {
        let output = &job["output"];
        valid += usize::from(job["status"] == "COMPLETE" && output["vendor"].is_string() && output["amount"].is_i64());
        let named = output["vendor"].as_str().unwrap_or_default().to_lowercase();
        right += usize::from(output["amount"] == *amount && named.contains(&vendor.to_lowercase()));
    }
    println!("{valid} valid, {right} right, of {}", invoices.len());
    // Asked directly, without anything between, it reads 18 of 20 rightly.
    assert!(valid * 20 >= invoices.len() * 17, "{valid} valid, {right} right: {outputs:#?}");
    assert!(right * 20 >= invoices.len() * 14, "{valid} valid, {right} right: {outputs:#?}");
}
