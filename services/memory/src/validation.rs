//! Validation of request fields, and conversion of common ones.

use holdfast_proto::memory::v1 as pb;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Error;

/// Provenance as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Source kind: user, tool, web, file, system or agent.
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub locator: String,
    pub retrieved_at: Timestamp,
    /// Principal who accepted the change, if it was proposed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accepted_by: String,
    /// The text may repeat text from outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

const SOURCES: [(pb::SourceKind, &str); 6] = [
    (pb::SourceKind::User, "user"),
    (pb::SourceKind::Tool, "tool"),
    (pb::SourceKind::Web, "web"),
    (pb::SourceKind::File, "file"),
    (pb::SourceKind::System, "system"),
    (pb::SourceKind::Agent, "agent"),
];

impl Provenance {
    /// Parses the provenance of a request.
    ///
    /// # Errors
    ///
    /// If it is missing or has no kind or name.
    pub fn read(given: Option<pb::Provenance>) -> Result<Self, Error> {
        let given = given.ok_or(Error::NoProvenance)?;
        let kind = SOURCES.iter().find(|(kind, _)| *kind == given.kind());
        let Some((_, kind)) = kind else { return Err(Error::NoProvenance) };
        if given.name.trim().is_empty() {
            return Err(Error::NoProvenance);
        }
        at_most("provenance.name", &given.name, 800)?;
        at_most("provenance.locator", &given.locator, 4000)?;
        let retrieved_at = time("provenance.retrieved_at", given.retrieved_at)?;
        Ok(Self {
            kind: (*kind).to_owned(),
            name: given.name,
            locator: given.locator,
            retrieved_at: retrieved_at.unwrap_or_else(Timestamp::now),
            accepted_by: String::new(),
            outside: given.outside,
        })
    }

    pub fn into_proto(self) -> pb::Provenance {
        let kind = SOURCES.iter().find(|(_, name)| *name == self.kind).map(|(kind, _)| *kind);
        pb::Provenance {
            kind: kind.unwrap_or_default().into(),
            name: self.name,
            locator: self.locator,
            retrieved_at: Some(proto_time(self.retrieved_at)),
            outside: self.outside,
        }
    }
}

/// Refuses a text that is longer than `bytes` or contains NUL.
pub fn at_most(field: &'static str, text: &str, bytes: usize) -> Result<(), Error> {
    if text.len() > bytes {
        let problem = format!("has {} bytes, and {bytes} are the most", text.len());
        return Err(Error::field(field, problem));
    }
    if text.contains('\0') {
        return Err(Error::field(field, "has a NUL character in it: remove it"));
    }
    Ok(())
}

/// Refuses a blank text, and one that [`at_most`] refuses.
pub fn non_blank(field: &'static str, text: &str, bytes: usize) -> Result<(), Error> {
    if text.trim().is_empty() {
        return Err(Error::field(field, "is empty, and has to say something"));
    }
    at_most(field, text, bytes)
}

/// Refuses tags that are too many or too long.
pub fn tags(tags: &[String]) -> Result<(), Error> {
    if tags.len() > 32 {
        let problem = format!("are {}, and 32 are the most", tags.len());
        return Err(Error::field("tags", problem));
    }
    tags.iter().try_for_each(|tag| non_blank("tags", tag, 64))
}

pub fn share(field: &'static str, given: Option<f64>) -> Result<Option<f64>, Error> {
    match given {
        Some(share) if !(0.0..=1.0).contains(&share) => {
            Err(Error::field(field, format!("is {share}: write 0 to 1")))
        }
        given => Ok(given),
    }
}

pub fn time(
    field: &'static str,
    given: Option<prost_types::Timestamp>,
) -> Result<Option<Timestamp>, Error> {
    let Some(given) = given else { return Ok(None) };
    Timestamp::new(given.seconds, given.nanos)
        .map(Some)
        .map_err(|_| Error::field(field, "is no time that a calendar has"))
}

pub fn proto_time(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// Returns the page size: `usual` for 0, at most 500.
pub fn page(limit: u32, usual: u32) -> Result<i64, Error> {
    match limit {
        0 => Ok(usual.into()),
        1..=500 => Ok(limit.into()),
        _ => Err(Error::field("limit", format!("is {limit}: write 1 to 500, or 0"))),
    }
}

/// Parses an id with its prefix: `itm_…`, `doc_…`.
pub fn id(what: &'static str, prefix: &'static str, text: &str) -> Result<Uuid, Error> {
    text.strip_prefix(prefix)
        .and_then(|id| id.strip_prefix('_'))
        .and_then(|id| Uuid::try_parse(id).ok())
        .ok_or_else(|| Error::not_found(what, text))
}

/// Returns an id with its prefix.
pub fn prefixed_id(prefix: &str, id: Uuid) -> String {
    format!("{prefix}_{}", id.simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(name: &str) -> pb::Provenance {
        pb::Provenance {
            kind: pb::SourceKind::Web.into(),
            name: name.into(),
            locator: "https://example.com/a".into(),
            retrieved_at: Some(prost_types::Timestamp { seconds: 1_800_000_000, nanos: 0 }),
            outside: true,
        }
    }

    #[test]
    fn where_something_comes_from_reads_back() {
        let given = from("example.com");

        assert_eq!(Provenance::read(Some(given.clone())).unwrap().into_proto(), given);
    }

    #[test]
    fn nothing_is_kept_that_comes_from_nowhere() {
        let unnamed = from(" ");
        let unspecified = pb::Provenance { kind: 0, ..from("x") };

        for given in [None, Some(unnamed), Some(unspecified)] {
            assert!(matches!(Provenance::read(given), Err(Error::NoProvenance)));
        }
    }

    #[test]
    fn what_cannot_be_stored_is_refused_by_name() {
        assert!(at_most("text", "a\0b", 9).unwrap_err().to_string().contains("NUL"));
        assert!(
            non_blank("text", " \n", 9).unwrap_err().to_string().starts_with("`text` is empty")
        );
        assert!(share("confidence", Some(f64::NAN)).is_err());
        assert!(page(501, 50).is_err());
        assert!(id("item", "itm", "itm_1").is_err());
    }
}
