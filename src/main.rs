//! The binary: passes arguments and environment to the command line, and returns its exit code.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    trellis::cli::main(std::env::args_os().collect(), env.collect()).into()
}
