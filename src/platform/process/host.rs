//! The machine that this process runs on.

/// Returns the name of the machine, for people who look for a worker.
pub fn name() -> String {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map(|text| text.trim().to_owned()).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "host".to_owned())
}

/// Returns the user of this process, as `user@machine`.
pub fn user() -> String {
    let mut names = ["USER", "LOGNAME"].into_iter().filter_map(|variable| std::env::var(variable).ok());
    let user = names.find(|name| !name.is_empty()).unwrap_or_else(|| "somebody".to_owned());
    format!("{user}@{}", name())
}
