//! Exit codes of `trellis model try`.

use crate::support::cli::run;

const TEXT: &str = "[[rule]]\nthen = { text = 'Hello there, and welcome.' }\n";
const CALL: &str = "[[rule]]\nwhen = { text = 'add_numbers' }\n\
                    then = { calls = [{ tool = 'add_numbers', arguments = { a = 1712, b = 2543 } }] }\n";
const RESULT: &str = "[[rule]]\nwhen = { last_role = 'tool' }\nthen = { text = '4255' }\n";
const OUTPUT: &str = "[[rule]]\nwhen = { text = 'Eiffel' }\n\
                      then = { text = '{\"city\": \"Paris\", \"country\": \"France\"}' }\n";

fn faulty(when: &str, fault: &str) -> String {
    format!("[[rule]]\nwhen = {{ {when} }}\nthen = {{ text = 'x', fault = '{fault}' }}\n")
}

#[test]
fn a_try_that_did_not_work_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let works = [RESULT, CALL, OUTPUT, TEXT].concat();
    let before = |rule: &str| format!("{rule}{works}");
    let (result, eiffel) = ("last_role = 'tool'", "text = 'Eiffel'");
    for (rules, code, err) in [
        (works.clone(), 0, ""),
        ([OUTPUT, TEXT].concat(), 1, "does not work with this model: tools"),
        ([RESULT, CALL, TEXT].concat(), 1, "does not work with this model: structured output"),
        (before("[[rule]]\nwhen = { text = 'hello' }\nthen = { text = ' ' }\n"), 1, "with this model: text"),
        (before(&faulty(result, "bad_request")), 1, "does not work with this model: results"),
        (before(&faulty(eiffel, "unauthorized")), 1, "does not work with this model: structured output"),
        (before(&faulty(result, "rate_limit")), 8, "did not answer to the calls for: results"),
        (before(&faulty(eiffel, "overloaded")), 8, "did not answer to the calls for: structured output"),
        (faulty("text = 'hello'", "overloaded"), 8, "is unavailable"),
    ] {
        std::fs::write(dir.path().join("m.rules"), &rules).unwrap();
        let done = run(dir.path(), &["model", "try", "scripted/m.rules", "--set", "models.scripted=."]);
        let done = done.expect(code, err);
        // What was seen is shown in any case, but for a first call that fails.
        assert_eq!(done.out.contains("FEATURE"), !done.err.contains("is unavailable"), "{rules}: {done:?}");
    }
}

#[test]
fn a_provider_that_nobody_knows_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let done = run(dir.path(), &["model", "try", "opnai/gpt-5"]);
    assert!(
        done.err.contains("did you mean `openai`") && done.err.contains("models.endpoints.NAME.base_url"),
        "{done:?}"
    );
}
