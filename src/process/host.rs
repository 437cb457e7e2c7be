//! The machine that this process runs on.

/// Returns the name of the machine, for people who look for a worker.
pub fn name() -> String {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map(|text| text.trim().to_owned()).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "host".to_owned())
}

/// Returns the user of this process, as `user@machine`.
pub fn user() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned());
    format!("{user}@{}", name())
}
