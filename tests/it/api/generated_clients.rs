//! The API's description as others read it: linters, generated clients that drive a venue, a fuzzer.

use crate::support::api_tools::{NODE, node, python, run};
use crate::support::cli::Up;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const RULES: &str = "extends: [\"spectral:oas\"]\n";
const FILE: &str = "openapi.json";

/// A venue and a folder with its description.
fn described() -> (Up, TempDir) {
    let (up, dir) = (Up::start(), tempfile::tempdir().unwrap());
    let client = Command::new("curl").arg("-fsS").arg(format!("{}/api/v1/openapi.json", up.url)).output().unwrap();
    assert!(client.status.success(), "{client:?}");
    std::fs::write(dir.path().join(FILE), client.stdout).unwrap();
    (up, dir)
}

fn clients(name: &str) -> String {
    Path::new(ROOT).join("tests/clients").join(name).display().to_string()
}

#[test]
fn linters_find_no_error_in_the_description() {
    let (Some(redocly), Some(spectral)) = (node("redocly"), node("spectral")) else { return };
    let (_up, dir) = described();
    std::fs::write(dir.path().join("rules.yaml"), RULES).unwrap();
    run(dir.path(), &redocly, &["lint", FILE]);
    run(dir.path(), &spectral, &["lint", FILE, "--ruleset", "rules.yaml", "--fail-severity", "error"]);
    let text = std::fs::read(dir.path().join(FILE)).unwrap();
    let document: Value = serde_json::from_slice(&text).unwrap();
    let methods = document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap());
    for (_, operation) in methods.filter(|(name, _)| *name != "parameters") {
        assert!(operation["responses"]["4XX"].is_object() && operation["tags"][0].is_string(), "{operation}");
    }
}

#[test]
fn a_generated_python_client_drives_a_venue() {
    let (Some(generator), Some(python)) = (python("openapi-python-client"), python("python3")) else { return };
    let (up, dir) = described();
    let args = ["generate", "--path", FILE, "--output-path", "trellis_client", "--meta", "none"];
    let said = run(dir.path(), &generator, &args);
    // What can't be expressed is left out with a warning.
    assert!(!said.contains("will not be generated") && !said.contains("Unable to process"), "{said}");
    let folder = dir.path().display().to_string();
    let said = run(dir.path(), &python, &[&clients("generated_client.py"), &up.url, &folder]);
    assert!(said.ends_with("ok\n"), "{said}");
}

#[test]
fn generated_types_compile_and_drive_a_venue() {
    let (Some(generator), Some(compiler)) = (node("openapi-typescript"), node("tsc")) else { return };
    let (up, dir) = described();
    std::os::unix::fs::symlink(NODE, dir.path().join("node_modules")).unwrap();
    std::fs::write(dir.path().join("package.json"), "{\"type\": \"module\"}").unwrap();
    std::fs::copy(clients("generated_client.ts"), dir.path().join("client.ts")).unwrap();
    run(dir.path(), &generator, &[FILE, "-o", "api.ts"]);
    let strict = ["--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext", "client.ts"];
    run(dir.path(), &compiler, &strict);
    let said = run(dir.path(), Path::new("node"), &["client.js", &up.url]);
    assert!(said.ends_with("ok\n"), "{said}");
}

#[test]
fn no_fuzzed_request_contradicts_the_description() {
    let Some(fuzzer) = python("st") else { return };
    let script = Path::new(ROOT).join("tests/schemathesis.sh");
    let mut command = Command::new(script);
    command.env("TRELLIS", env!("CARGO_BIN_EXE_trellis")).env("ST", fuzzer).args(["-n", "60", "--seed", "7"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_illegal_owner_is_refused_everywhere() {
    let up = Up::start();
    for path in ["/metrics", "/work", "/api/v1/agent-schema", "/api/v1/operations", "/api/v1/agents", "/api/v1/status"]
    {
        let url = format!("{}{path}", up.url);
        let args = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Trellis-Owner: nobody", &url];
        assert_eq!(run(Path::new("/"), Path::new("curl"), &args), "400", "{path}");
    }
}
