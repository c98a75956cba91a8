//! Name spaces of the conversations that programs and people name.
//!
//! | name in the key | whose it is |
//! |---|---|
//! | `anna`, `anna/trip` | the user `anna` of programs that share the tenant's names |
//! | `=per_…/trip` | the person with this id |
//! | `=per_…@/anna/trip` | the user `anna` of those programs, who is the person with this id |
//! | `=key_…/anna/trip` | the user `anna` of this key, which shares its names with no other |
//! | `once-…`, `=key_…/once-…` | nobody: made for one request, and as secret as its name |
//!
//! Only the gateway makes names that begin with `=`, from the credentials of the caller.

use std::fmt;

use crate::{KeyId, PersonId};

/// First character of a name that belongs to one name space.
const SPACE_PREFIX: char = '=';

/// Last character of the name of a space of a person's conversations with programs.
const PROGRAM_MARK: char = '@';

/// Prefix of the names of conversations that are made for one request.
pub const SINGLE_REQUEST_PREFIX: &str = "once-";

/// Name space of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameSpace {
    /// Names that the tenant's programs share.
    Shared,
    /// Conversations of a person.
    Person(PersonId),
    /// Conversations of a user of the tenant's programs who is a person.
    ProgramUser(PersonId),
    /// Names of the users of one API key.
    Key(KeyId),
}

impl NameSpace {
    /// Name of a conversation in this space, as it stands in a session key.
    #[must_use]
    pub fn qualify(self, name: &str) -> String {
        match self {
            Self::Shared => name.to_owned(),
            Self::Person(_) | Self::ProgramUser(_) | Self::Key(_) => format!("{self}{name}"),
        }
    }

    /// Splits the name in a session key into its space and the name there; `None` if it begins as
    /// one with a space and names none.
    #[must_use]
    pub fn split(name: &str) -> Option<(Self, &str)> {
        let Some(rest) = name.strip_prefix(SPACE_PREFIX) else { return Some((Self::Shared, name)) };
        let (space, rest) = rest.split_once('/')?;
        let person = || Some(Self::Person(space.parse().ok()?));
        let user = || Some(Self::ProgramUser(space.strip_suffix(PROGRAM_MARK)?.parse().ok()?));
        let key = || Some(Self::Key(space.parse().ok()?));
        Some((person().or_else(user).or_else(key)?, rest))
    }

    /// The person whose conversations these are, if they are one person's.
    #[must_use]
    pub const fn person(self) -> Option<PersonId> {
        match self {
            Self::Person(person) | Self::ProgramUser(person) => Some(person),
            Self::Shared | Self::Key(_) => None,
        }
    }
}

/// Prefix of the names of the space; empty for the shared one.
impl fmt::Display for NameSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => Ok(()),
            Self::Person(person) => write!(f, "{SPACE_PREFIX}{person}/"),
            Self::ProgramUser(person) => write!(f, "{SPACE_PREFIX}{person}{PROGRAM_MARK}/"),
            Self::Key(key) => write!(f, "{SPACE_PREFIX}{key}/"),
        }
    }
}

/// Whether a caller's own name for a conversation could be taken for one with a space.
#[must_use]
pub fn is_reserved_name(name: &str) -> bool {
    name.trim_start().starts_with(SPACE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_the_space_that_it_begins_with() {
        let (person, key) = (PersonId::generate(), KeyId::generate());

        for space in [
            NameSpace::Shared,
            NameSpace::Person(person),
            NameSpace::ProgramUser(person),
            NameSpace::Key(key),
        ] {
            assert_eq!(NameSpace::split(&space.qualify("anna/trip")), Some((space, "anna/trip")));
        }
        for unknown in ["=", "=anna", "=anna/trip", "=/trip", "=per_/x", "=@/x"] {
            assert_eq!(NameSpace::split(unknown), None, "{unknown}");
            assert!(is_reserved_name(unknown));
        }
        assert!(!is_reserved_name("anna=1"));
    }
}
