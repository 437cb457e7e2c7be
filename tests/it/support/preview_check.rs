//! A model that looks, before it answers, at what a preview shows of the turn that asks it: the same prompt, and with
//! the turn's commit the same ledger.

use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use trellis::domain::chat::{ModelRequest, Reply};
use trellis::domain::context::assemble::assemble;
use trellis::domain::context::ledger::PromptLedger;
use trellis::domain::ids::{Owner, SessionKey};
use trellis::model::{LiveText, Model, ModelError};
use trellis::venue::Venue;
use trellis::venue::context::preview::{self, Preview};
use trellis::venue::ledger;
use trellis::venue::secrets::OpenedSecret;

/// What a prompt says that is the last of its task.
const LAST: &str = "A limit is reached: this is your last turn";

/// Whose turn it is.
type Place = (Owner, SessionKey, u64);

/// What previews have shown of turns, and where the turns differ.
#[derive(Default)]
pub struct Foresight {
    shown: Mutex<HashMap<Place, PromptLedger>>,
    unlike: Mutex<Vec<String>>,
}

/// The model of the workers of a venue.
struct Foreseen {
    inner: Arc<dyn Model>,
    venue: Arc<Venue>,
    foresight: Arc<Foresight>,
}

impl Foresight {
    /// A model that looks first.
    pub fn of(self: &Arc<Self>, inner: Arc<dyn Model>, venue: &Arc<Venue>) -> Arc<dyn Model> {
        Arc::new(Foreseen { inner, venue: Arc::clone(venue), foresight: Arc::clone(self) })
    }

    /// Fails where previews and turns differ; of those that were committed, their ledgers too.
    pub async fn check(&self, venue: &Venue) {
        let shown = std::mem::take(&mut *self.shown.lock().unwrap());
        for ((owner, session, turn), foreseen) in shown {
            let past = ledger::load(&*venue.store, &owner, &session, turn).await.unwrap();
            let Some(seen) = past.and_then(|past| past.seen) else { continue };
            if seen.ledger != foreseen {
                self.note(format!("ledger of {session}/{turn}:\n{foreseen:#?}\n{:#?}", seen.ledger));
            }
        }
        let unlike = self.unlike.lock().unwrap().join("\n");
        assert!(unlike.is_empty(), "previews and turns differ: {unlike}");
    }

    fn note(&self, what: String) {
        self.unlike.lock().unwrap().push(what);
    }
}

/// `owner/agent/session/turn`.
fn place(turn: &str) -> Place {
    let mut parts = turn.rsplitn(4, '/');
    let mut part = || parts.next().unwrap();
    let (turn, session, agent) = (part().parse().unwrap(), part().parse().unwrap(), part().parse().unwrap());
    (part().parse().unwrap(), SessionKey { agent, session }, turn)
}

/// Prompts as texts: what goes to a provider, but for what its turn pays.
fn text(request: &ModelRequest) -> String {
    let ModelRequest { model, system, messages, tools, turn, stable, output } = request;
    format!("{turn} {}\n{system}\n{messages:#?}\n{tools:#?}\n{stable} {output:?}", model.id())
}

impl Foreseen {
    async fn look(&self, request: &ModelRequest) {
        let (owner, session, turn) = place(&request.turn);
        let asked = Preview { session: Some(session.session.clone()), ..Preview::default() };
        let foreseen = match preview::inputs(&self.venue, &owner, &session.agent, asked).await {
            Ok(inputs) => assemble(&inputs),
            Err(error) => return self.foresight.note(format!("{}: {error}", request.turn)),
        };
        match foreseen {
            Err(refused) => self.foresight.note(format!("{}: {}", request.turn, refused.error)),
            Ok(foreseen) => {
                let (foreseen_text, real) = (text(&foreseen.request), text(request));
                if real.contains(LAST) && !foreseen_text.contains(LAST) {
                    // It has reached the limit since it began.
                    return;
                }
                if let Some((foreseen, real)) = foreseen_text.lines().zip(real.lines()).find(|(a, b)| a != b) {
                    self.foresight.note(format!("{}: expected `{foreseen}`, got `{real}`", request.turn));
                } else if foreseen_text.len() != real.len() {
                    self.foresight.note(format!("{}: {foreseen_text}\n{real}", request.turn));
                }
                self.foresight.shown.lock().unwrap().insert((owner, session, turn), foreseen.ledger);
            }
        }
    }
}

#[async_trait]
impl Model for Foreseen {
    async fn complete(
        &self,
        request: &ModelRequest,
        secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        self.look(request).await;
        self.inner.complete(request, secrets, live).await
    }
}
