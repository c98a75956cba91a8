//! Terms of a unit in the syntax of Postgres' full-text search.
//!
//! A `tsvector` is written literally (`'tea':1,4 'cup':2`), so that one function (`recall::terms`)
//! decides about terms for the index and for questions.
//!
//! Beside its terms each unit has an owner mark, which cannot be a word: `@` and a hash of tenant,
//! agent and user. With it, the index reads only the units of the searched owners. The database
//! adds it (`memory.mark`). A mark of tenant and agent only is written here for processes of the
//! previous version, which search for that one.

use std::collections::BTreeMap;

use holdfast_types::TenantId;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Highest position in a `tsvector`, and maximum positions per term.
const MAX_POSITION: usize = 16_383;
const MAX_POSITIONS_PER_TERM: usize = 255;

/// Returns the `tsvector` of terms, with an owner mark.
pub fn vector(terms: &[String], mark: &str) -> String {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, term) in terms.iter().enumerate() {
        let of = places.entry(term).or_default();
        if of.len() < MAX_POSITIONS_PER_TERM {
            of.push((at + 1).min(MAX_POSITION));
        }
    }
    let mut out = quoted(mark);
    for (term, mut at) in places {
        at.dedup();
        let at: Vec<String> = at.iter().map(ToString::to_string).collect();
        out.push(' ');
        out.push_str(&quoted(term));
        out.push(':');
        out.push_str(&at.join(","));
    }
    out
}

/// Returns one `tsquery` per term.
pub fn each_of(terms: &[String]) -> Vec<String> {
    terms.iter().map(|term| quoted(term)).collect()
}

/// Returns a `tsquery` that matches any of the terms.
pub fn any_of(terms: &[String]) -> String {
    each_of(terms).join(" | ")
}

/// Returns the owner mark of an agent's units.
pub fn owner_mark(tenant: TenantId, agent: Uuid) -> String {
    let mut hash = Sha256::new();
    hash.update(tenant.as_uuid().as_bytes());
    hash.update(agent.as_bytes());
    let hash = hash.finalize();
    let mut mark = String::from("@");
    for byte in &hash[..10] {
        mark.push_str(&format!("{byte:02x}"));
    }
    mark
}

fn quoted(term: &str) -> String {
    format!("'{}'", term.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_vector_has_each_term_once_with_its_places() {
        assert_eq!(vector(&terms(&["tea", "cup", "tea"]), "@x"), "'@x' 'cup':2 'tea':1,3");
        assert_eq!(vector(&[], "@x"), "'@x'");
    }

    #[test]
    fn quotes_and_backslashes_stay_within_their_term() {
        assert_eq!(any_of(&terms(&["o'clock", r"a\'b"])), r"'o''clock' | 'a\\''b'");
    }

    #[test]
    fn a_very_long_text_stays_within_what_postgres_takes() {
        let long = vec!["tea".to_owned(); 100_000];

        let vector = vector(&long, "@x");

        assert_eq!(vector.matches(',').count(), MAX_POSITIONS_PER_TERM - 1);
    }

    #[test]
    fn whose_a_unit_is_differs_by_tenant_and_by_agent() {
        let (tenant, agent) = (TenantId::generate(), Uuid::now_v7());

        assert_eq!(owner_mark(tenant, agent), owner_mark(tenant, agent));
        assert_ne!(owner_mark(tenant, agent), owner_mark(tenant, Uuid::nil()));
        assert_ne!(owner_mark(tenant, agent), owner_mark(TenantId::generate(), agent));
        assert_eq!(owner_mark(tenant, agent).len(), 21);
    }
}
