//! Allow list of a channel account: the senders that may write to it (spec CHN-019, C-51).
//!
//! An empty list allows nobody. An entry is an id (on Matrix `@name:server`), a name with or without
//! `@`, `id|name`, or `*` for everybody. In `id|name` only the id counts, because a name can pass to another person.

use schemars::JsonSchema;
use serde::Deserialize;

/// Senders that are allowed to write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(from = "Vec<RawEntry>")]
pub struct AllowList(#[schemars(with = "Vec<RawEntry>")] Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Everybody,
    /// An id or a name: only the platform knows which of the two the text is.
    Either(String),
    Name(String),
    Id(String),
}

/// Entry as people write it; some platforms have numeric ids.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "an entry is an id, `@name`, `id|name` or `*`")]
enum RawEntry {
    Number(i64),
    Text(String),
}

impl From<Vec<RawEntry>> for AllowList {
    fn from(written: Vec<RawEntry>) -> Self {
        let text = |entry| match entry {
            RawEntry::Number(id) => id.to_string(),
            RawEntry::Text(text) => text,
        };
        Self(written.into_iter().filter_map(|entry| Entry::parse(&text(entry))).collect())
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "*" {
            return Some(Self::Everybody);
        }
        if let Some((id, name)) = text.split_once('|') {
            return match (id.trim(), name.trim().trim_start_matches('@')) {
                ("", "") => None,
                ("", name) => Some(Self::Name(name.to_owned())),
                (id, _) => Some(Self::Id(id.to_owned())),
            };
        }
        match (text, text.strip_prefix('@')) {
            ("" | "@", _) => None,
            // A user id of Matrix, `@name:server`; no platform has such names.
            (text, Some(name)) if name.contains(':') => Some(Self::Id(text.to_owned())),
            (_, Some(name)) => Some(Self::Name(name.to_owned())),
            (text, None) => Some(Self::Either(text.to_owned())),
        }
    }

    fn matches(&self, id: &str, name: &str) -> bool {
        let is_named = |wanted: &str| !name.is_empty() && wanted.eq_ignore_ascii_case(name);
        match self {
            Self::Everybody => true,
            Self::Either(either) => either == id || is_named(either),
            Self::Name(wanted) => is_named(wanted),
            Self::Id(wanted) => wanted == id,
        }
    }
}

impl AllowList {
    /// Whether an entry other than `*` matches the sender.
    #[must_use]
    pub fn names(&self, id: &str, name: &str) -> bool {
        let named = self.0.iter().filter(|entry| !matches!(entry, Entry::Everybody));
        named.into_iter().any(|entry| entry.matches(id, name))
    }

    /// Whether the sender is allowed; `name` is empty if the sender has none.
    #[must_use]
    pub fn allows(&self, id: &str, name: &str) -> bool {
        self.0.iter().any(|entry| entry.matches(id, name))
    }

    /// Whether an entry is this id. `*` does not count, and neither do names, because a name can
    /// pass to another person.
    #[must_use]
    pub fn names_id(&self, id: &str) -> bool {
        !id.is_empty()
            && self.0.iter().any(|entry| match entry {
                Entry::Either(wanted) | Entry::Id(wanted) => wanted == id,
                Entry::Everybody | Entry::Name(_) => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(entries: serde_json::Value) -> AllowList {
        serde_json::from_value(entries).unwrap()
    }

    #[test]
    fn an_empty_list_allows_nobody_and_a_star_everybody() {
        assert!(!list(json!([])).allows("7", "anna"));
        assert!(!list(json!(["", "@", "|"])).allows("7", ""));
        assert!(list(json!(["*"])).allows("7", ""));
    }

    #[test]
    fn an_entry_is_an_id_a_name_or_both() {
        for (entry, allows) in [
            (json!(7), true),
            (json!("7"), true),
            (json!("@Anna"), true),
            (json!("anna"), true),
            (json!("7|anna"), true),
            (json!("7|@somebody_else"), true),
            (json!("8|anna"), false),
            (json!("@7"), false),
            (json!("8"), false),
            (json!("@ann"), false),
        ] {
            assert_eq!(list(json!([entry])).allows("7", "anna"), allows, "{entry}");
        }
    }

    #[test]
    fn a_star_names_nobody() {
        assert!(!list(json!(["*"])).names("7", "anna"));
        assert!(list(json!(["*", 7])).names("7", ""));
        assert!(!list(json!(["*", 7])).names("8", ""));
    }

    #[test]
    fn only_an_id_names_somebody() {
        for (entry, names) in [
            (json!(7), true),
            (json!("7|anna"), true),
            (json!("@7"), false),
            (json!("*"), false),
            (json!("anna"), false),
        ] {
            assert_eq!(list(json!([entry])).names_id("7"), names, "{entry}");
        }
        assert!(!list(json!([""])).names_id(""));
    }

    #[test]
    fn a_user_id_of_matrix_is_an_id() {
        let listed = list(json!(["@anna:example.org"]));

        assert!(listed.allows("@anna:example.org", "") && listed.names_id("@anna:example.org"));
        assert!(!listed.allows("7", "anna:example.org"));
    }

    #[test]
    fn one_without_a_name_is_matched_by_id_alone() {
        assert!(!list(json!(["@anna"])).allows("7", ""));
        assert!(list(json!(["@anna", 7])).allows("7", ""));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let error = serde_json::from_value::<AllowList>(json!([true])).unwrap_err();

        assert!(error.to_string().contains("`id|name`"), "{error}");
    }
}
