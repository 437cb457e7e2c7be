//! Reasons why the resources of a configuration are refused.

use crate::domain::nearest::nearest;
use crate::domain::resource::files::FilesError;
use crate::domain::resource::memory::MemorySettingsError;
use crate::domain::visible::quote_foreign;

/// Why a provider refuses the settings of a declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderSettingsError {
    /// The settings of a memory break a rule.
    #[error(transparent)]
    Memory(#[from] MemorySettingsError),
    /// Files have no settings.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Why a declared resource is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredResourceError {
    /// The venue has no provider of the kind.
    #[error(
        "`resources.{}`: nothing provides the kind `{}`{}",
        quote_foreign(.name),
        quote_foreign(.kind),
        kind_hint(.kind, .known)
    )]
    NoProvider {
        /// Name of the resource.
        name: String,
        /// Kind that it declares.
        kind: String,
        /// Kinds that the venue has providers of.
        known: Vec<String>,
    },
    /// The provider refuses the settings.
    #[error("`resources.{name}`: {error}")]
    Settings {
        /// Name of the resource.
        name: String,
        /// Rule that the settings break.
        error: Box<ProviderSettingsError>,
    },
}

/// Returns which kind is meant, or which kinds there are, as the end of a text.
fn kind_hint(kind: &str, known: &[String]) -> String {
    let kinds: Vec<&str> = known.iter().map(String::as_str).collect();
    nearest(kind, &kinds).map_or_else(
        || format!(", there are {}; a resource of another name says which by `kind`", join_names(known)),
        |kind| format!(", did you mean `{kind}`"),
    )
}

/// Returns a list of names such as "`a`, `b` and `c`".
fn join_names(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}
