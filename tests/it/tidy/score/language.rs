//! Names and comments: a reader must be able to guess what a thing is from its name, without its history.

use super::Figure;
use super::reading::{Function, Reading};
use std::collections::BTreeMap;

/// Words that say no thing: a block of comments that has no other has no noun.
const FUNCTION_WORDS: &str = "a about above after again all also an and another any anybody are as at away back be been \
    before behind below beside both but by came can comes did do does done each else ended even ever every everybody \
    few for from further gets given goes gone had has have he held her here him his how i if in into is it its itself \
    just kept known last least left less made makes many may meant more most much must named needed never new next no \
    nobody none nor not nothing now of off on once one ones only onto or other others otherwise out over own put read \
    really runs said same sees sent she should shown so some somebody something soon stands still such taken takes than \
    that the their them then there these they this those though through till to told too two under until up upon used \
    very was way we well went were what whatever when where whether which while who whoever whole whom whose why will \
    with within without wont would written yet you";

/// Participles and particles that are no name of a deed.
const PARTICLES: &str = "of at by on off in into out up down over under with within without after before again still once \
    beside between besides behind during since until left said held shown gone known given taken seen meant heard told \
    sent kept made found cut all both each none here there where which whose whom who why comes goes waits works begun \
    born broken brought caught drawn driven fallen felt forgotten frozen grown hidden laid lent lost met paid \
    stuck sworn thrown torn worn written however whatever together apart alone aside";

/// Names that end like a participle and are a noun or a verb.
const NOUNS_AND_VERBS: &str = "embed feed need proceed seed speed succeed string listen open ping ring widen flatten token \
    heading ceiling meaning ruling listing routing reasoning setting spelling binding mapping warning beginning ending \
    len children then keygen screen hidden_of bring sibling encoding decoding padding spring timing pricing tracing \
    shorten lengthen strengthen threaten red";

fn words(list: &str) -> Vec<&str> {
    list.split_whitespace().collect()
}

/// Words of a comment; text in code quotes counts as one name.
fn words_of(text: &str) -> Vec<String> {
    let is_letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '`');
    text.split(|c: char| !is_letter(c)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn has_noun(text: &str) -> bool {
    let function_words = words(FUNCTION_WORDS);
    words_of(text).iter().any(|word| !function_words.contains(&word.as_str()))
}

/// Whether a function is named by one participle or particle.
fn is_bare(function: &Function) -> bool {
    let name = function.name.as_str();
    let has_ending = ["ed", "en", "ing"].iter().any(|ending| name.ends_with(ending));
    !function.is_of_trait
        && !name.contains('_')
        && (words(PARTICLES).contains(&name) || has_ending && !words(NOUNS_AND_VERBS).contains(&name))
}

fn is_writing_predicate(function: &Function) -> bool {
    let is_predicate = ["is_", "has_", "can_", "are_"].iter().any(|sign| function.name.starts_with(sign));
    is_predicate && function.has_mut && !function.is_of_trait
}

fn places(readings: &[Reading], of: impl Fn(&Reading) -> Vec<(usize, String)>) -> Vec<String> {
    readings
        .iter()
        .flat_map(|reading| of(reading).into_iter().map(|(line, what)| reading.at(line, &what)).collect::<Vec<_>>())
        .collect()
}

fn functions(readings: &[Reading], is_counted: impl Fn(&Function) -> bool) -> Vec<String> {
    places(readings, |reading| {
        let counted = reading.functions.iter().filter(|function| is_counted(function));
        counted.map(|function| (function.line, function.name.clone())).collect()
    })
}

fn lines(readings: &[Reading], of: impl Fn(&Reading) -> &Vec<usize>) -> Vec<String> {
    places(readings, |reading| of(reading).iter().map(|line| (*line, String::new())).collect())
}

/// Names of types that more than one type has.
fn shared_names(readings: &[Reading]) -> Vec<String> {
    let mut named: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for reading in readings {
        for (line, name) in &reading.types {
            named.entry(name).or_default().push(format!("{}:{line}", reading.path));
        }
    }
    let shared = named.into_iter().filter(|(_, places)| places.len() > 1);
    shared.map(|(name, places)| format!("`{name}`: {}", places.join(", "))).collect()
}

pub fn figures(readings: &[Reading]) -> Vec<Figure> {
    let docs = |is_counted: fn(&str) -> bool| {
        places(readings, |reading| reading.docs.iter().filter(|(_, text)| is_counted(text)).cloned().collect())
    };
    // `describe` makes the OpenAPI document, a free form that is no answer of an operation.
    let is_described = |path: &str| path.starts_with("src/http/describe/");
    let is_answer = |path: &str| path.starts_with("src/http/") && !is_described(path) || path.starts_with("src/ops/");
    let (answers, command_line): (Vec<_>, Vec<_>) = (
        readings.iter().filter(|reading| is_answer(&reading.path)).collect(),
        readings.iter().filter(|reading| reading.path.starts_with("src/cli/")).collect(),
    );
    let of_some = |readings: &[&Reading], of: fn(&Reading) -> &Vec<usize>| {
        let places = readings.iter().flat_map(|reading| of(reading).iter().map(|line| reading.at(*line, "")));
        places.collect::<Vec<_>>()
    };
    vec![
        Figure::new("comments of at most two words", 0, 0, docs(|text| words_of(text).len() <= 2)),
        Figure::new("comments without a noun", 0, 0, docs(|text| !has_noun(text))),
        Figure::new("functions named by a participle or particle", 7, 10, functions(readings, is_bare)),
        Figure::new("names that several types have", 0, 13, shared_names(readings)),
        Figure::new("predicates that take `&mut`", 0, 0, functions(readings, is_writing_predicate)),
        Figure::new("functions with a tuple as parameter", 0, 0, functions(readings, |of| of.tuples > 0)),
        Figure::new("functions of more than six parameters", 0, 0, functions(readings, |of| of.parameters > 6)),
        Figure::new("`Result<_, String>`", 0, 0, lines(readings, |of| &of.text_errors)),
        Figure::new("`Result<Result<_, _>, _>`", 0, 0, lines(readings, |of| &of.nested_results)),
        Figure::new("`json!` in answers of the API", 0, 0, of_some(&answers, |of| &of.json)),
        Figure::new("`[\"key\"]` in the command line", 0, 0, of_some(&command_line, |of| &of.look_ups)),
    ]
}

#[test]
fn a_comment_has_a_noun_and_a_name_a_verb() {
    assert!(!has_noun("Whose.") && !has_noun("What it comes to.") && !has_noun("As it is."));
    assert!(has_noun("Bytes in the prompt.") && has_noun("The same of `Name`."));
    let named = |name: &str| Function {
        line: 1,
        name: name.to_owned(),
        has_mut: false,
        tuples: 0,
        parameters: 0,
        is_of_trait: false,
    };
    for (name, bare) in
        [("held", true), ("of", true), ("waiting", true), ("heading", false), ("hold", false), ("is_held", false)]
    {
        assert_eq!(is_bare(&named(name)), bare, "{name}");
    }
}
