//! Limits of pipelines.

/// Steps of one sequence: a longer one is written as pipelines inside one another.
pub const PIPELINE_STEPS: usize = 64;

/// Branches that run side by side: each is a child job of its own, and their results come in one handout of a mailbox.
pub const PIPELINE_BRANCHES: usize = 32;

/// Passes of a loop at most, and by default.
pub const PIPELINE_ITERATIONS: u32 = 100;

/// Steps that one run begins in all its passes: each is a job with turns of its own.
pub const PIPELINE_CHILDREN: usize = 1_000;

/// Properties of a typed input: each is a value of every prompt that names it.
pub const INPUT_PROPERTIES: usize = 128;

/// Bytes of the values of a State: they are written with each turn of its session.
pub const PIPELINE_STATE_BYTES: usize = 512 * 1024;

/// Bytes of the inputs of all branches together: they are recorded with the turn that begins them.
pub const PIPELINE_INPUT_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that the templates of one step, or of one output, fill in.
pub const PIPELINE_TEXT_BYTES: usize = PIPELINE_STATE_BYTES;
