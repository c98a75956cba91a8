//! Searchable unit: a memory, a conversation turn or a chunk, as it is indexed.

use holdfast_recall::terms;
use holdfast_types::TenantId;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{validation::Provenance, viewer::Viewer, words};

/// Kinds of units, numbered as in the API and in the tables.
pub mod kind {
    pub const MEMORY: i16 = 1;
    /// Value under a key.
    pub const VALUE: i16 = 2;
    /// Statement of subject, predicate and object.
    pub const FACT: i16 = 3;
    pub const EVENT: i16 = 4;
    pub const TURN: i16 = 5;
    pub const DOCUMENT: i16 = 6;
    pub const KNOWLEDGE: i16 = 7;
    pub const ALL: [i16; 7] = [MEMORY, VALUE, FACT, EVENT, TURN, DOCUMENT, KNOWLEDGE];
}

/// Bytes of a text that are indexed for keyword search. A `tsvector` has at most 1 MB.
const MAX_INDEXED_BYTES: usize = 64 * 1024;

/// Unit to insert. Field names are column names: it is passed to Postgres as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Unit {
    pub unit_id: Uuid,
    pub kind: i16,
    pub source_id: Uuid,
    pub agent_id: Uuid,
    pub user_id: String,
    pub session: String,
    #[serde(rename = "type")]
    pub of_type: String,
    pub scope: i16,
    pub author: String,
    #[serde(rename = "ref")]
    pub reference: String,
    pub place: i32,
    pub path: String,
    pub headings: Vec<String>,
    pub starts: i32,
    pub ends: i32,
    pub tags: Vec<String>,
    pub text: String,
    pub group_safe: bool,
    pub at: Timestamp,
    pub dated: bool,
    pub expires_at: Option<Timestamp>,
    pub terms: i32,
    pub length: i32,
    pub words: String,
    pub hash: String,
    pub provenance: Provenance,
}

impl Unit {
    /// Creates a unit that belongs to `who`'s agent and user; other fields are empty.
    ///
    /// The terms of `context` are searchable too, but are not embedded.
    pub fn new(tenant: TenantId, who: &Viewer, kind: i16, said: UnitContent<'_>) -> Self {
        let own = said.terms.len();
        let all = [said.context, said.terms].concat();
        let unit_id = Uuid::now_v7();
        Self {
            unit_id,
            kind,
            source_id: unit_id,
            agent_id: who.agent,
            user_id: who.user.clone(),
            session: String::new(),
            of_type: String::new(),
            scope: 0,
            author: String::new(),
            reference: String::new(),
            place: 0,
            path: String::new(),
            headings: Vec::new(),
            starts: 0,
            ends: 0,
            tags: Vec::new(),
            text: said.text.to_owned(),
            group_safe: false,
            at: said.at,
            dated: false,
            expires_at: None,
            terms: i32::try_from(own).unwrap_or(i32::MAX),
            length: i32::try_from(all.len()).unwrap_or(i32::MAX),
            words: words::vector(&all, &words::owner_mark(tenant, who.agent)),
            hash: hex(&hash(&[], said.text)),
            provenance: said.provenance.clone(),
        }
    }

    /// Adds headings, which are embedded with the text.
    pub fn under(mut self, headings: Vec<String>) -> Self {
        self.hash = hex(&hash(&headings, &self.text));
        self.headings = headings;
        self
    }
}

#[derive(Debug, Clone, Copy)]
pub struct UnitContent<'a> {
    pub text: &'a str,
    pub terms: &'a [String],
    /// Additional search terms: of the turn before, or of the headings above.
    pub context: &'a [String],
    pub at: Timestamp,
    pub provenance: &'a Provenance,
}

/// Returns the search terms of a text.
pub fn terms_of(text: &str) -> Vec<String> {
    terms(cut(text))
}

/// Returns the text of a unit that is embedded.
pub fn embedded_text(headings: &[String], text: &str) -> String {
    if headings.is_empty() {
        text.to_owned()
    } else {
        format!("{}\n{text}", headings.join(" › "))
    }
}

/// Returns the hash by which equal embedded texts are recognised.
pub fn hash(headings: &[String], text: &str) -> Vec<u8> {
    Sha256::digest(embedded_text(headings, text).as_bytes()).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\\x{}", digits.concat())
}

/// Returns the indexed beginning of a text.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_INDEXED_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from() -> Provenance {
        Provenance {
            kind: "user".into(),
            name: "ann".into(),
            locator: String::new(),
            retrieved_at: Timestamp::UNIX_EPOCH,
            accepted_by: String::new(),
            outside: false,
        }
    }

    fn who() -> Viewer {
        Viewer {
            agent: Uuid::nil(),
            user: "ann".into(),
            group: false,
            maintainer: false,
            everything: false,
        }
    }

    fn unit(tenant: TenantId, text: &str, context: &str) -> Unit {
        let (terms, context, provenance) = (terms_of(text), terms_of(context), from());
        let said = UnitContent {
            text,
            terms: &terms,
            context: &context,
            at: Timestamp::UNIX_EPOCH,
            provenance: &provenance,
        };
        Unit::new(tenant, &who(), kind::TURN, said)
    }

    #[test]
    fn a_unit_is_found_by_its_context_which_is_no_part_of_its_meaning() {
        let tenant = TenantId::generate();

        let alone = unit(tenant, "In Rome.", "");
        let after = unit(tenant, "In Rome.", "Where is tea?");

        assert!(!alone.words.contains("'tea'") && after.words.contains("'tea'"));
        assert_eq!((&alone.hash, alone.terms), (&after.hash, after.terms));
        assert_eq!((alone.length, after.length), (1, 2));
    }

    #[test]
    fn the_same_text_under_another_heading_means_something_else() {
        let tenant = TenantId::generate();
        let unit = || unit(tenant, "Never.", "");

        assert_ne!(unit().under(vec!["Tea".into()]).hash, unit().under(vec!["Milk".into()]).hash);
        assert_eq!(embedded_text(&["A".into(), "B".into()], "c"), "A › B\nc");
    }

    #[test]
    fn a_huge_text_is_indexed_by_its_beginning() {
        assert_eq!(cut(&"ж".repeat(100_000)).len(), MAX_INDEXED_BYTES);
    }
}
