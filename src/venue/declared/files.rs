//! Files with declared tools that the venue's configuration names: their operations are for all owners.

use super::{DeclaredOperationError, JOBS_GROUP, OWN_GROUP, lint, runtime_operation};
use crate::config::files::{SETTINGS_FILE_BYTES, read_text_file};
use crate::config::yaml::{self, YamlError};
use crate::domain::declared::ToolDeclaration;
use crate::domain::decode::{self, DataError, TomlError};
use crate::domain::ids::sha256_hex;
use crate::domain::lattice::catalog::SourceName;
use crate::domain::time::Millis;
use crate::domain::visible::quote_foreign;
use crate::venue::operation::{Catalog, Publication, PublicationError, RuntimeOperation};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Endings of the names of such files.
const ENDINGS: [&str; 4] = ["toml", "json", "yaml", "yml"];

/// Content of a file with declared tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolFile {
    /// Group of the operations; the file's name when absent.
    #[serde(default)]
    group: Option<String>,
    tools: Vec<ToolDeclaration>,
}

/// Why the declared tools of the venue can't be published.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {problem}", .file.display())]
pub struct ToolFileError {
    /// Path of the file or the folder.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: Box<ToolFileProblem>,
}

/// What is wrong with a file of declared tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolFileProblem {
    /// The file can't be read.
    #[error("it can't be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The name ends otherwise than those of such files.
    #[error("expected a file that ends in `.toml`, `.json` or `.yaml`")]
    Ending,
    /// The text is not JSON, or has another form than a file of tools.
    #[error("{0}")]
    Data(#[from] DataError),
    /// The text is not TOML.
    #[error("malformed TOML: {0}")]
    Toml(#[from] TomlError),
    /// The text is not YAML.
    #[error("malformed YAML: {0}")]
    Yaml(#[from] YamlError),
    /// The group is one for the tools of agents and records.
    #[error("`group`: `{}` is the group of tools that agents and records declare, expected another", quote_foreign(.group))]
    OwnGroup {
        /// Name of the group.
        group: String,
    },
    /// Another file has the same group.
    #[error("`group`: `{}` is that of `{}`, too", quote_foreign(.group), .other.display())]
    SameGroup {
        /// Name of the group.
        group: String,
        /// The other file.
        other: PathBuf,
    },
    /// A declaration makes no operation.
    #[error("`tools[{at}]`: {error}")]
    Tool {
        /// Index of the declaration.
        at: usize,
        /// Rule that it breaks.
        error: DeclaredOperationError,
    },
    /// The operations of the file can't be published.
    #[error("{0}")]
    Publication(Box<PublicationError>),
}

/// Operations of one group, with what makes their version.
#[derive(Default)]
struct DeclaredGroup {
    file: PathBuf,
    operations: Vec<RuntimeOperation>,
    versions: Vec<String>,
}

/// Publishes the tools of a file, or of all files directly in a folder, for all owners.
pub fn publish_files(catalog: &Catalog, path: &Path, now: Millis) -> Result<(), ToolFileError> {
    let at = |file: &Path| {
        let file = file.to_owned();
        move |problem: ToolFileProblem| ToolFileError { file, problem: Box::new(problem) }
    };
    let mut groups: BTreeMap<String, DeclaredGroup> = BTreeMap::new();
    for file in list_files(path).map_err(|error| at(path)(error.into()))? {
        add_file(catalog, &file, &mut groups).map_err(at(&file))?;
    }
    for (group, DeclaredGroup { file, operations, versions }) in groups {
        let published = publish(catalog, &group, operations, &versions, now);
        published.map_err(at(&file))?;
    }
    Ok(())
}

fn publish(
    catalog: &Catalog,
    group: &str,
    operations: Vec<RuntimeOperation>,
    versions: &[String],
    now: Millis,
) -> Result<(), ToolFileProblem> {
    let name = SourceName::new(group);
    let source = name.map_err(|error| ToolFileProblem::Tool { at: 0, error: error.into() })?;
    let version = sha256_hex(versions.join(" ").as_bytes());
    let publication = Publication { source, owner: None, agent: None, version, expires: None, operations };
    let published = catalog.publish(publication, now);
    published.map_err(|error| ToolFileProblem::Publication(Box::new(error)))
}

/// Returns the path if it is a file, or the files with known endings in it, by name.
fn list_files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(|file| ending(file).is_some()).collect();
    files.sort();
    Ok(files)
}

fn ending(file: &Path) -> Option<&str> {
    file.extension()?.to_str().filter(|ending| ENDINGS.contains(ending))
}

/// Adds the operations of a file to their groups.
fn add_file(
    catalog: &Catalog,
    file: &Path,
    groups: &mut BTreeMap<String, DeclaredGroup>,
) -> Result<(), ToolFileProblem> {
    let ToolFile { group, tools } = read_tools(file)?;
    let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let group = group.unwrap_or_else(stem);
    if [OWN_GROUP, JOBS_GROUP].contains(&group.as_str()) {
        return Err(ToolFileProblem::OwnGroup { group });
    }
    if let Some(other) = groups.get(&group) {
        return Err(ToolFileProblem::SameGroup { group, other: other.file.clone() });
    }
    for (at, tool) in tools.iter().enumerate() {
        let operation = runtime_operation(catalog, tool).map_err(|error| ToolFileProblem::Tool { at, error })?;
        if let Some(fault) = lint::url_fault(catalog, tool) {
            tracing::warn!(file = %file.display(), tool = tool.name, fault, "no call of a declared tool can be made");
        }
        let place = if tool.jobs.is_some() { JOBS_GROUP } else { group.as_str() };
        let place = groups.entry(place.to_owned()).or_default();
        file.clone_into(&mut place.file);
        place.operations.push(operation);
        place.versions.push(tool.version());
    }
    Ok(())
}

fn read_tools(file: &Path) -> Result<ToolFile, ToolFileProblem> {
    let ending = ending(file).ok_or(ToolFileProblem::Ending)?;
    let text = read_text_file(file, SETTINGS_FILE_BYTES)?;
    let content = match ending {
        "toml" => decode::toml(&text)?,
        "json" => decode::json(text.as_bytes())?,
        _ => {
            let value = yaml::parse(&text)?;
            decode::check(&value)?;
            value
        }
    };
    Ok(decode::typed_with_hint(&content)?)
}
