//! Records: what is written is read back, costs what changed, and assembles to the same prompt.

use super::manifest::{BaseManifest, Manifest};
use super::part::{PartName, PartNamer};
use super::period::Period;
use super::{LedgerWrite, PartContents, RecordWriter, RestoredRecord, pack_system, pack_tools, read};
use crate::agent::{CompletionRule, PromptStyle};
use crate::authority::Authority;
use crate::call::ToolTarget;
use crate::chat::{ChatMessage, ModelSettings, ToolSpec};
use crate::context::assemble::assemble;
use crate::context::budget::PromptBudget;
use crate::context::fill;
use crate::context::goals::{CompactedTurns, GoalView};
use crate::context::inputs::{Inputs, Layout, Moment, PromptFrame, ServedEvents};
use crate::context::item::{Absence, ItemContent, PromptItem, Section};
use crate::context::ledger::{HashForm, PromptLedger, Row, RowStatus};
use crate::context::transcript_turn::TranscriptTurn;
use crate::event::{Event, Payload};
use crate::ids::{AssetId, JobId};
use crate::job::JobResult;
use crate::media::Attachment;
use crate::origin::{Origin, SourceRead};
use crate::prefix::{PiecePlace, PlacedPiece, StablePrefix};
use crate::session::{CallerMessage, PendingJob, TurnRecord};
use crate::time::Millis;
use crate::tools::ToolTable;
use crate::values::inject::Injection;
use crate::values::inserted_values::KnownValues;
use crate::values::placeholder::UsedKey;
use crate::values::{ContextMapping, Resolver, Tier};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const NAME: &str = "t/u/clerk/main/7";
/// A session value that no text names, and one that is filled into calls.
const UNUSED: &str = "nobody names it";
const INJECTED: &str = "for the tool alone";

fn namer() -> PartNamer {
    PartNamer::new(b"key", &"t/u".parse().unwrap())
}

fn job(n: usize) -> JobId {
    JobId::new(&format!("{n:032x}")).unwrap()
}

fn event(n: usize, payload: Payload) -> Event {
    let caller = Some("t/u".into());
    let id = format!("e{n}").parse().unwrap();
    Event { caller, session_context: Map::new(), ..Event::new(id, Millis(0), payload) }
}

fn turn(n: usize, text: String) -> Arc<TranscriptTurn> {
    Arc::new(TranscriptTurn::from(TurnRecord {
        turn: n as u64,
        heard: vec![CallerMessage { job: None, text: format!("heard {n}"), attachments: Vec::new() }],
        said: vec![ChatMessage::assistant(text, Vec::new())],
        ..TurnRecord::default()
    }))
}

fn tools(n: usize) -> Arc<ToolTable> {
    let spec = |at: usize| ToolSpec {
        name: format!("tool_{at}"),
        description: format!("Does {at}. {}", "It really does. ".repeat(at)),
        schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    let targets = (0..n).map(|at| ToolTarget::Operation(format!("v/ops/x/{at}"))).collect();
    let refused = vec![("v/ops/no".into(), "no such".into())];
    let mut table = ToolTable::new((0..n).map(spec).collect(), targets, refused);
    if let Some(last) = table.injections.last_mut().filter(|_| n.is_multiple_of(3)) {
        last.values.insert("hidden".into(), json!({"n": INJECTED}));
        table.reports.push(("tool_0".into(), "a report".into()));
    }
    Arc::new(table)
}

fn inputs(items: Vec<PromptItem>) -> Inputs {
    Inputs {
        frame: PromptFrame {
            agent: "clerk".parse().unwrap(),
            venue: "test".into(),
            model: ModelSettings { temperature: Some(0.25), ..ModelSettings::new("scripted", "x") },
            authority: Authority::default(),
            disclosure: None,
            bound: Authority::default(),
            completion: CompletionRule::Implicit,
            strict: false,
            aliases: false,
            bare: false,
            prompt: PromptStyle::Full,
        },
        moment: Moment { turn: NAME.into(), date: "2026-01-02".into(), budget: PromptBudget::default() },
        system: "You are {{session.name}}, a clerk.".into(),
        values: KnownValues::default(),
        items,
        tools: tools(2),
        transcript: Vec::new(),
        served: ServedEvents::default(),
        layout: Layout::StableFirst(None),
        attachments: Vec::new(),
    }
}

fn item(name: &str, content: ItemContent) -> PromptItem {
    PromptItem {
        section: Section::Context,
        key: format!("context/{name}"),
        label: Some(name.to_owned()),
        source: Some(format!("w/{name}")),
        allowed: Some("w/ crud/read".into()),
        asked: None,
        priority: 500,
        required: false,
        unresolved: Vec::new(),
        tags: crate::context::item::HandOffTags::default(),
        origin: crate::origin::Origin::default(),
        content,
        attachments: Vec::new(),
    }
}

fn scribe(inputs: &Inputs, base: Option<&BaseManifest>) -> RecordWriter {
    let namer = namer();
    RecordWriter {
        period: Period::from_start(Millis(0)),
        base: base.cloned().map(Arc::new),
        tools: Arc::new(pack_tools(&namer, &inputs.tools)),
        system: Arc::new(pack_system(&namer, &inputs.system)),
        namer,
    }
}

/// A session's records as a store would hold them.
#[derive(Default)]
struct Stored {
    parts: PartContents,
    base: Option<BaseManifest>,
}

impl Stored {
    fn add(&mut self, turn: u64, inputs: &Inputs) -> LedgerWrite {
        let ledger = match assemble(inputs) {
            Ok(assembled) => assembled.ledger,
            Err(refused) => refused.ledger,
        };
        let write = scribe(inputs, self.base.as_ref()).write(turn, inputs, &ledger);
        self.parts.extend(write.parts.iter().cloned());
        self.base = Some(BaseManifest::read(self.base.as_ref(), turn, &write.manifest).unwrap());
        write
    }

    fn manifest(&self) -> &Manifest {
        &self.base.as_ref().unwrap().manifest
    }

    fn restore(&self, inputs: &Inputs) -> RestoredRecord {
        read(&inputs.moment.turn, self.manifest(), &self.parts, inputs.transcript.clone()).unwrap()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 12] =
            ["a", "word ", "é", "😀", "\"", "\\", "\n", "\r\n", "@", "{{session.name}}", "=0,1", " "];
        let longest = [0, 1, 5, 80, 1500][self.below(5)];
        (0..self.below(longest + 1)).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 => Value::Null,
            1 => json!(i64::try_from(self.below(1 << 30)).unwrap() - (1 << 29)),
            2 => json!(self.below(1 << 30).to_string().parse::<f64>().unwrap() / 1e7),
            3 => json!(self.text()),
            4 => (0..self.below(9)).map(|_| (self.text(), self.value(depth - 1))).collect::<Map<_, _>>().into(),
            _ => (0..self.below(9)).map(|_| self.value(depth - 1)).collect(),
        }
    }

    fn content(&mut self) -> ItemContent {
        match self.below(5) {
            0 => ItemContent::Absent(Absence::Denied, self.text()),
            1 => ItemContent::Excerpt { text: self.text(), of: self.below(1 << 20) },
            2 => ItemContent::Text(self.text()),
            _ => ItemContent::Value(self.value(3)),
        }
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(2) == 0).then_some(value)
    }

    fn item(&mut self) -> PromptItem {
        let text = self.text();
        let content = self.content();
        PromptItem {
            label: self.maybe(text.clone()),
            source: self.maybe(text),
            allowed: self.maybe("w/ crud".into()),
            asked: self.maybe(700),
            required: self.below(9) == 0,
            unresolved: if self.below(4) == 0 { vec!["key".into()] } else { Vec::new() },
            attachments: self.maybe(AssetId::of_content(b"x")).into_iter().collect(),
            origin: Origin { version: self.maybe(3), hash: self.maybe("ab".into()), reads: Vec::new() },
            ..item(&self.below(9).to_string(), content)
        }
    }

    fn inputs(&mut self) -> Inputs {
        let events = |random: &mut Self, kind: usize| {
            let payload = |random: &mut Self, n| match kind {
                0 => Payload::Result { job: job(n), result: JobResult::complete(json!([random.value(2)])) },
                _ => Payload::Message { input: random.value(2), to: None },
            };
            (0..random.below(3)).map(|n| (format!("k{n}"), event(n, payload(random, n)))).collect()
        };
        let task = event(9, Payload::Task { job: job(9), input: self.value(2) });
        let served = ServedEvents {
            task: self.maybe(task),
            results: events(self, 0),
            messages: events(self, 1),
            pending: (0..self.below(3))
                .map(|n| {
                    (job(n), PendingJob { agent: "b".parse().unwrap(), started: Millis(1), under: None, frame: 0 })
                })
                .collect(),
            remind: self.below(2) == 0,
            goals: GoalView {
                frame: 2,
                goal: self.maybe("reach it".to_owned()),
                above: vec!["[Goal 0] {}".into()],
                segments: self.maybe("[Compacted: 2 turns] x".to_owned()).into_iter().collect(),
                compacted: vec![CompactedTurns { to: 3, authority: Authority::default(), bound: Authority::default() }],
            },
            last: self.below(2) == 0,
            missed: self.maybe("topc".to_owned()).into_iter().collect(),
        };
        let items: Vec<_> = (0..self.below(6)).map(|_| self.item()).collect();
        let Value::Object(session) = json!({"session.name": self.text(), "unused": UNUSED}) else { unreachable!() };
        let first = 1 + self.below(9);
        let transcript = (first..first + self.below(5)).map(|n| turn(n, self.text())).collect();
        let resolver = Resolver::new(session, Map::new(), Map::new(), ContextMapping::default());
        let system = self.text();
        let values = fill::known_values(&system, &items, &resolver);
        let placed = |random: &mut Self| PlacedPiece {
            hash: random.below(1 << 20).to_string(),
            place: [PiecePlace::Front, PiecePlace::Turn(3), PiecePlace::Tail][random.below(3)],
        };
        let prefix = StablePrefix {
            basis: self.text(),
            from: self.below(9) as u64,
            pieces: (0..self.below(4)).map(|_| (self.text(), placed(self))).collect(),
        };
        let layout = if self.below(4) == 0 { Layout::MapFirst } else { Layout::StableFirst(self.maybe(prefix)) };
        let attachments = self.maybe(Attachment { tokens: 7, ..Attachment::of_asset(AssetId::of_content(b"x")) });
        let attachments = attachments.into_iter().collect();
        Inputs {
            layout,
            system,
            values,
            tools: tools(self.below(20)),
            transcript,
            served,
            attachments,
            ..inputs(items)
        }
    }
}

/// What is filled into calls is for the worker that makes them, and not recorded.
fn without_injections(mut inputs: Inputs) -> Inputs {
    let table = Arc::make_mut(&mut inputs.tools);
    table.injections.fill(Injection::default());
    inputs
}

#[test]
fn random_inputs_come_back_and_assemble_to_the_same_prompt() {
    let mut stored = Stored::default();
    for turn in 1..=60 {
        let inputs = Random(turn).inputs();
        let write = stored.add(turn, &inputs);
        let kept: String = write.parts.into_iter().map(|(_, content)| content).chain([write.manifest]).collect();
        assert!(!kept.contains(UNUSED) && !kept.contains(INJECTED), "turn {turn}: {kept}");
        let restored = stored.restore(&inputs);
        let again = restored.inputs.unwrap_or_else(|gone| panic!("turn {turn}: {gone:?} is gone"));
        let inputs = without_injections(inputs);
        assert!(again == inputs, "turn {turn}");
        let (now, before) = (assemble(&again), assemble(&inputs));
        assert!(now == before, "turn {turn}");
        let ledger = now.map_or_else(|refused| refused.ledger, |assembled| assembled.ledger);
        assert_eq!(restored.ledger, ledger, "turn {turn}");
    }
}

#[test]
fn a_turn_costs_what_changed() {
    let notes =
        |turn: usize| -> Value { (0..turn).map(|n| json!(format!("note {n} {}", "x".repeat(1_000)))).collect() };
    let inputs = |number: usize| Inputs {
        transcript: (1..number).map(|n| turn(n, String::new())).collect(),
        tools: tools(60),
        system: "Be exact. ".repeat(500),
        ..inputs(vec![
            item("notes", ItemContent::Value(notes(number))),
            item("rules", ItemContent::Text("r".repeat(9_000))),
        ])
    };
    let mean = |first: u64| {
        let mut stored = Stored::default();
        let mut bytes = Vec::new();
        for turn in first..first + 11 {
            let write = stored.add(turn, &inputs(usize::try_from(turn).unwrap()));
            let parts: usize = write.parts.iter().map(|(name, content)| name.as_str().len() + content.len()).sum();
            bytes.push(write.manifest.len() + parts);
        }
        assert!(bytes[0] > 20_000, "the first turn writes everything: {}", bytes[0]);
        bytes[1..].iter().sum::<usize>() / 10
    };
    let (early, late) = (mean(5), mean(289));
    assert!(early < 4_000, "{early}");
    assert!(late * 10 <= early * 12, "{late} at turn 300, {early} at turn 10");
}

#[test]
fn an_unchanged_turn_is_one_small_document() {
    let mut stored = Stored::default();
    let inputs = Inputs { tools: tools(40), ..inputs(vec![item("a", ItemContent::Text("a".repeat(5_000)))]) };
    stored.add(1, &inputs);
    let write = stored.add(2, &inputs);
    assert_eq!((write.manifest.as_str(), write.parts.len()), ("ledger 2 1 base 1\n=0,21", 0));
}

#[test]
fn the_bytes_of_a_record_are_pinned() {
    let served = ServedEvents {
        task: Some(event(1, Payload::Task { job: job(1), input: "go".into() })),
        messages: vec![("k2".into(), event(2, Payload::Message { input: json!({"hi": [1, 2.5]}), to: None }))],
        pending: vec![(job(3), PendingJob { agent: "b".parse().unwrap(), started: Millis(5), under: None, frame: 0 })],
        remind: true,
        last: true,
        ..ServedEvents::default()
    };
    let items = vec![
        item("list", ItemContent::Value(json!([1, "two"]))),
        item("gone", ItemContent::Absent(Absence::Missing, "nothing is there".into())),
    ];
    let Value::Object(session) = json!({"session.name": "Ada", "unused": UNUSED}) else { unreachable!() };
    let mut inputs = Inputs { served, transcript: vec![turn(5, "a".into()), turn(6, "b".into())], ..inputs(items) };
    let resolver = Resolver::new(session, Map::new(), Map::new(), ContextMapping::default());
    inputs.values = fill::known_values(&inputs.system, &inputs.items, &resolver);
    let row = Row {
        key: "context/list".into(),
        source: Some("w/list".into()),
        allowed: Some("w/ crud/read".into()),
        asked: 9,
        given: 8,
        rendered: 7,
        status: RowStatus::Shrunk,
        reason: Some("larger than its budget".into()),
        origin: Origin::default(),
    };
    let origin = Origin {
        version: Some(3),
        hash: Some("ab".into()),
        reads: vec![SourceRead { through: "v/ops/lattice/read".into(), ..SourceRead::new("w/x") }],
    };
    let ledger = PromptLedger {
        rows: vec![row.clone(), Row { origin, ..row }],
        values: vec![UsedKey { key: "a".into(), tier: Tier::Session, bytes: 3, at: None }],
        unresolved: vec!["b".into()],
        cut: vec!["c".into()],
        used: 1_383,
        prefix: "p".into(),
        prompt: "q".into(),
        ..PromptLedger::default()
    };
    let write = scribe(&inputs, None).write(7, &inputs, &ledger);
    assert_eq!(write.manifest, include_str!("pinned.txt").trim_end());
    let restored = |stored: &str| {
        let base = BaseManifest::read(None, 7, stored).unwrap();
        let parts = write.parts.iter().cloned().collect();
        read(NAME, &base.manifest, &parts, inputs.transcript.clone()).unwrap().ledger
    };
    assert_eq!(restored(&write.manifest).rows, ledger.rows);
    // As versions before have written it.
    let before = write.manifest.replace("prompt q rfc8785", "prompt q");
    assert_eq!((restored(&before).prompt.as_str(), restored(&before).form), ("q", HashForm::Fields));
    assert_eq!(restored(&write.manifest).form, HashForm::Canonical);
    let layout = |stored: &str| {
        let base = BaseManifest::read(None, 7, stored).unwrap();
        let parts = write.parts.iter().cloned().collect();
        read(NAME, &base.manifest, &parts, inputs.transcript.clone()).map(|read| read.inputs.unwrap().layout)
    };
    assert_eq!(layout(&write.manifest), Ok(Layout::StableFirst(None)));
    assert_eq!(layout(&write.manifest.replace("layout 2\n\"null\"\n", "")), Ok(Layout::MapFirst));
    let newer = layout(&write.manifest.replace("layout 2", "layout 3"));
    assert_eq!(newer.unwrap_err().to_string(), "a line of a manifest makes no sense: `layout 3`");
}

#[test]
fn missing_parts_are_named() {
    let mut stored = Stored::default();
    let inputs = Inputs {
        tools: tools(40),
        transcript: vec![turn(1, String::new()), turn(2, String::new())],
        ..inputs(vec![
            item("kept", ItemContent::Text("k".repeat(500))),
            item("notes", ItemContent::Text("n".repeat(500))),
        ])
    };
    stored.add(3, &inputs);
    let whole = stored.restore(&inputs);
    let gone = |parts: &PartContents, transcript: &[Arc<TranscriptTurn>]| {
        let restored = read(NAME, stored.manifest(), parts, transcript.to_vec()).unwrap();
        assert_eq!(restored.ledger.rows, whole.ledger.rows);
        restored.inputs.unwrap_err()
    };
    let without = |name: &PartName| {
        let mut parts = stored.parts.clone();
        parts.remove(name).unwrap();
        parts
    };
    let notes = &namer().pack(&"n".repeat(500)).parts[0].0;
    assert_eq!(gone(&without(notes), &inputs.transcript), ["context/notes"]);
    let packed = pack_tools(&namer(), &inputs.tools);
    for (name, _) in [packed.parts.first().unwrap(), packed.parts.last().unwrap()] {
        assert_eq!(gone(&without(name), &inputs.transcript), ["tools"]);
    }
    assert_eq!(gone(&stored.parts, &inputs.transcript[1..]), ["transcript"]);
    assert_eq!(gone(&without(notes), &[]), ["transcript", "context/notes"]);
}

#[test]
fn lists_of_parts_are_read_before_what_they_list() {
    let namer = namer();
    let packed = pack_tools(&namer, &tools(40));
    let manifest = Manifest { lines: packed.lines.clone() };
    let parts: PartContents = packed.parts.iter().map(|(name, text)| (name.clone(), text.to_string())).collect();
    let lists: Vec<_> = manifest.list_parts().collect();
    assert_eq!(lists.len(), 1);
    assert_eq!(Manifest::listed_parts(&parts, lists).len(), packed.parts.len() - 1);
}
