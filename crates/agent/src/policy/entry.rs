//! Entries of tool lists.

use super::{
    error::{Error, short},
    glob,
    group::{Members, family, members},
    name::{canonical, is_known},
};

/// Maximum length of an entry, in characters.
pub(crate) const MAX_ENTRY_CHARS: usize = 128;

/// Maximum number of entries in a list.
const MAX_ENTRIES: usize = 512;

/// Parsed entry of a tool list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    All,
    /// Canonical name of a tool, or id of a plugin.
    Name(String),
    Glob(String),
    /// Group, or short name of a tool family.
    Group {
        /// The entry in lower case.
        text: String,
        members: Members,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Allow,
    Deny,
}

impl Entry {
    /// Parses and checks an entry.
    ///
    /// # Errors
    ///
    /// If no tool could have such a name.
    pub(crate) fn parse(text: &str, at: &str) -> Result<Self, Error> {
        let text = text.trim();
        let is_odd = |c: char| c.is_control() || c.is_whitespace();
        if text.is_empty() || text.chars().count() > MAX_ENTRY_CHARS || text.contains(is_odd) {
            return Err(Error::Entry { at: at.to_owned(), entry: short(text) });
        }
        Ok(Self::read(text))
    }

    /// Parses an entry without checks.
    pub(crate) fn read(text: &str) -> Self {
        let lower = text.trim().to_lowercase();
        if lower.chars().all(|c| c == '*') && !lower.is_empty() {
            Self::All
        } else if let Some(word) = lower.strip_prefix("group:") {
            Self::Group { members: members(word), text: lower }
        } else if let Some(members) = family(&lower) {
            Self::Group { text: lower, members }
        } else if glob::is_pattern(&lower) {
            Self::Glob(lower)
        } else {
            Self::Name(canonical(&lower).into_owned())
        }
    }

    /// Whether the entry names something of the product's own, available or not.
    pub(crate) fn is_of_core(&self) -> bool {
        match self {
            Self::All => true,
            Self::Name(name) => is_known(name),
            Self::Glob(_) => false,
            Self::Group { members, .. } => matches!(members, Members::Fixed(_) | Members::Native),
        }
    }

    /// Whether covering no tool is not a mistake: a plugin's tools come and go.
    pub(crate) fn may_be_empty(&self) -> bool {
        match self {
            Self::All => true,
            Self::Name(name) => is_known(name),
            Self::Glob(_) => false,
            Self::Group { members, .. } => {
                matches!(
                    members,
                    Members::Fixed(_) | Members::Native | Members::Plugins | Members::Mcp
                )
            }
        }
    }
}

/// Parses a list.
///
/// # Errors
///
/// If the list is too long, or an entry could never name a tool.
pub(crate) fn parse_all<T: AsRef<str>>(list: &[T], at: &str) -> Result<Vec<Entry>, Error> {
    if list.len() > MAX_ENTRIES {
        return Err(Error::TooMany { at: at.to_owned(), got: list.len(), limit: MAX_ENTRIES });
    }
    list.iter().map(|text| Entry::parse(text.as_ref(), at)).collect()
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Name(text) | Self::Glob(text) | Self::Group { text, .. } => f.write_str(text),
        }
    }
}
