//! Ids of jobs (spec CRN-003).

use crate::error::{Error, bounds, shown};

/// Maximum length of an id in bytes; imported jobs keep their ids.
const MAX_ID_BYTES: usize = 128;

/// Validates an id that comes from another system.
///
/// # Errors
///
/// If the id is empty, longer than 128 bytes or has characters other than letters, digits and
/// `_-.:@`.
pub fn check_id(id: &str) -> Result<(), Error> {
    let is_fine = |c: char| c.is_alphanumeric() || "_-.:@".contains(c);
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.chars().all(is_fine) {
        return Ok(());
    }
    Err(bounds("id", format!("`{}`", shown(id)), "1 to 128 letters, digits and `_-.:@`"))
}
