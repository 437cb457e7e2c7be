//! *Your first agent*, as it is printed.

use super::{blocks_in, has_programs, run_as_reader, stdout_of};
use crate::support::cli::Up;
use std::path::Path;

#[test]
fn the_page_of_the_first_agent_works_as_pasted() {
    if !has_programs(&["bash", "jq"]) {
        return;
    }
    let up = Up::start();
    // The first block starts the venue.
    let (start, rest) = blocks_in("src/guide/first-agent.md", "sh")
        .into_iter()
        .partition::<Vec<_>, _>(|block| block.text.lines().any(|line| line.starts_with("trellis up")));
    assert_eq!((start.len(), rest.len()), (1, 6));
    let script: String = rest.into_iter().map(|block| block.text).collect();
    let output = run_as_reader(up.dir.path(), &up.url, Path::new("bash"), &["-euo", "pipefail", "-c", &script]);
    let said = stdout_of("first-agent.md", &output);
    for expected in
        ["Order A-1 is paid: ship it.\nship it\n", "I can't say.\nnothing was written\n", "crud/read on w/orders"]
    {
        assert!(said.contains(expected), "`{expected}` is not in: {said}");
    }
}
