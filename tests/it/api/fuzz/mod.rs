//! Fuzzing of what strangers write: bodies, paths, grants and tokens. In the suite some thousand inputs from
//! a fixed seed; for as long as wanted with `tests/fuzz.sh`.
//!
//! An input is a mutated seed, or a mutated earlier input that was refused in a new way. Not only
//! may nothing panic: what is accepted must obey the rules, which are said a second time here.

mod bodies;
mod grants;
mod mutate;
mod paths;
mod tokens;

use mutate::Random;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Minutes to run; absent = a fixed number of inputs.
const MINUTES: &str = "TRELLIS_FUZZ_MINUTES";
/// Another seed than the suite's.
const SEED: &str = "TRELLIS_FUZZ_SEED";
/// Inputs that are kept for further mutation.
const KEPT: usize = 4096;

/// What became of one input.
enum Verdict {
    Accepted,
    /// With the rule that it breaks.
    Refused(String),
}

/// Something that reads what strangers write. The error of `check` is a broken property.
struct Target<C: FnMut(&str, &mut Random) -> Result<Verdict, String>> {
    name: &'static str,
    /// Legal and hostile examples.
    seeds: Vec<String>,
    mutate: fn(&mut Random, &str, &[String]) -> String,
    check: C,
}

/// Numbers from the environment; anything else in there is a mistake of who started this.
fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{name}`: expected a number, got `{text}`")))
}

/// A refusal up to what it quotes, so that alike ones are alike.
fn class(rule: &str) -> String {
    let before = rule.split(['`', ':', '"']).next().unwrap_or_default();
    before.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}

/// Runs a target: `inputs` of them, or for the time that the environment says.
fn run<C: FnMut(&str, &mut Random) -> Result<Verdict, String>>(mut target: Target<C>, inputs: u64) {
    let minutes: Option<f64> = setting(MINUTES);
    let seed: u64 = setting(SEED).unwrap_or(1);
    let (begin, limit) = (Instant::now(), minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)));
    let mut corpus = target.seeds.clone();
    let mut classes = BTreeSet::new();
    let (mut done, mut accepted) = (0u64, 0u64);
    while limit.map_or(done < inputs, |limit| begin.elapsed() < limit) {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ done);
        // Every seed goes first as it is.
        let plain = usize::try_from(done).ok().and_then(|at| target.seeds.get(at)).cloned();
        let input = plain.unwrap_or_else(|| {
            // Half of them stay near what is legal.
            let origins = if random.below(2) == 0 { &target.seeds } else { &corpus };
            let origin = random.pick(origins).clone();
            (target.mutate)(&mut random, &origin, &corpus)
        });
        let verdict = catch_unwind(AssertUnwindSafe(|| (target.check)(&input, &mut random)));
        let problem = match verdict {
            Ok(Ok(verdict)) => {
                let (taken, class) = match verdict {
                    Verdict::Accepted => (true, "accepted".to_owned()),
                    Verdict::Refused(rule) => (false, class(&rule)),
                };
                accepted += u64::from(taken);
                if classes.insert(class) || (taken && random.below(8) == 0) {
                    corpus.push(input);
                    if corpus.len() > KEPT {
                        corpus.swap_remove(target.seeds.len() + random.below(KEPT - target.seeds.len()));
                    }
                }
                None
            }
            Ok(Err(broken)) => Some((input, broken)),
            Err(_) => Some((input, "it panicked".to_owned())),
        };
        if let Some((input, problem)) = problem {
            panic!("{}: seed {seed}, input {done}: {problem}\ninput: {input:?}", target.name);
        }
        done += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = done as f64 / seconds;
    println!(
        "fuzz {}: seed {seed}, {done} inputs in {seconds:.1} s ({rate:.0}/s), {accepted} accepted, {} refused in {} ways",
        target.name,
        done - accepted,
        classes.len() - usize::from(accepted > 0)
    );
    assert!(accepted > 0, "{}: nothing was accepted, so that nothing was proved", target.name);
    assert!(accepted < done, "{}: nothing was refused, so that nothing was proved", target.name);
}

#[test]
fn accepted_bodies_are_read_back_unchanged() {
    run(bodies::target(), 3_000);
}

#[test]
fn accepted_paths_print_as_they_were_read() {
    run(paths::target(), 6_000);
}

#[test]
fn accepted_grants_keep_boundaries_and_never_widen() {
    run(grants::target(), 1_500);
}

#[test]
fn tokens_verify_only_as_signed_and_within_every_link() {
    run(tokens::target(), 250);
}
