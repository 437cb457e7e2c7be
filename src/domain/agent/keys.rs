//! Keys of agent files.

/// Keys that an agent file may have.
pub(super) const KEYS: [&str; 34] = [
    "description",
    "systemPrompt",
    "model",
    "tools",
    "defaultTools",
    "toolNames",
    "context",
    "contextBudget",
    "caps",
    "delegable",
    "resources",
    "contextWrite",
    "concurrency",
    "mailbox",
    "busy",
    "completion",
    "loop",
    "outputs",
    "session",
    "retry",
    "limits",
    "contextMapping",
    "toolArgInjection",
    "entityIdsRequired",
    "entityIdsKey",
    "strictPlaceholders",
    "prompt",
    "published",
    "a2a",
    "mcp",
    "pipeline",
    "inputSchema",
    "taskPrompt",
    "a2aAgents",
];

/// Keys of the specification that this version doesn't act on. They are refused rather than ignored, because an ignored
/// limit promises what isn't kept.
pub(super) const UNSUPPORTED_KEYS: [&str; 1] = ["visibility"];
