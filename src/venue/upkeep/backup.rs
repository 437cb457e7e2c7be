//! Backup of an embedded store while it works, for `trellis backup` and `v/ops/venue/backup`.

use crate::store::{BackupFacts, BackupOutcome};
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::view::venue::BackupView;

/// Most characters of a backup's name.
const NAME: usize = 64;

/// Makes a backup of this name; returns its path and size.
pub async fn make(venue: &Venue, name: &str) -> Result<BackupView, OpError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    // The name is that of a folder; an unfinished backup begins with a dot.
    if name.is_empty() || name.len() > NAME || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(OpError::Invalid(format!(
            "the name of a backup has up to {NAME} letters, digits, `.`, `_` and `-`, and begins with no `.`, got `{name}`"
        )));
    }
    match venue.store.backup(name).await? {
        BackupOutcome::Made(BackupFacts { path, records, bytes }) => Ok(BackupView { path, records, bytes }),
        BackupOutcome::Exists(path) => {
            Err(OpError::Conflict(format!("there is a backup `{}`: give another name, or delete it", path.display())))
        }
        BackupOutcome::OnServers => Err(OpError::Conflict(
            "the store lies on servers, which are copied by their own tools: `redis-cli --rdb FILE`; see \
             src/guide/backup.md"
                .to_owned(),
        )),
    }
}
