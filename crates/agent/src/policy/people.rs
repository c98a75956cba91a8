//! Roles of the authors of a turn, and ownership of the agent (spec TOL-006, C-02, C-39).
//!
//! | role | given to |
//! |---|---|
//! | `owner` | people in `owners`; owners of the tenant; an API key with the scope `owner` |
//! | `admin` | people with it in `roles`; operators of the tenant; an API key with the scope `admin` |
//! | `member` | people in `roles` or on the account's allow-list; people who signed in; every API key but a guest's; owners and admins |
//! | `guest` | all other authors, and those whom their channel has not verified |
//! | any other | people with it in `roles` |
//!
//! A turn may answer several people at once. It has the roles that all of them have, so that nobody
//! gains rights by another's message.

use std::collections::BTreeSet;

use holdfast_types::{Author, has_platform_wide_ids};
use serde::Deserialize as _;
use serde_json::Value;

use super::{
    compiled_policy::MAX_LIST_LEN,
    error::{Error, short},
    settings::Settings,
};

/// Role of the agent's owners.
pub const OWNER: &str = "owner";
const ADMIN: &str = "admin";
const MEMBER: &str = "member";
/// Role of authors whom nothing names.
pub const GUEST: &str = "guest";

/// Maximum length of a person's id or a role, in bytes.
const MAX_NAME_BYTES: usize = 300;

/// People named in the settings of the tenant and the agent.
#[derive(Debug, Default)]
pub(crate) struct NamedPeople {
    /// Id and role.
    named: BTreeSet<(String, String)>,
}

/// Roles of the authors of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnAuthors {
    /// Id of the author; `None` if there are several or none.
    pub user: Option<String>,
    /// Roles that all authors have, sorted; empty without authors.
    pub roles: Vec<String>,
}

impl TurnAuthors {
    /// Whether all authors own the agent; `false` without authors.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.roles.iter().any(|role| role == OWNER)
    }

    /// Whether neither the policy nor the channel account's list names the authors; `true` without
    /// authors. A role of any name is enough: `roles.vip` names a person, too.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.roles.iter().all(|role| role == GUEST)
    }
}

impl NamedPeople {
    pub(crate) fn new(tenant: &Settings, agent: &Settings) -> Result<Self, Error> {
        let mut people = Self::default();
        for (root, settings) in [("tools", tenant), ("agent.tools", agent)] {
            people.take(OWNER, &settings.owners, &format!("{root}.owners"))?;
            let at = format!("{root}.roles");
            if settings.roles.len() > MAX_LIST_LEN {
                return Err(Error::TooMany { at, got: settings.roles.len(), limit: MAX_LIST_LEN });
            }
            for (role, list) in &settings.roles {
                let role = checked_role(role, &at)?;
                people.take(&role, list, &format!("{at}.{role}"))?;
            }
        }
        Ok(people)
    }

    fn take(&mut self, role: &str, list: &[String], at: &str) -> Result<(), Error> {
        if list.len() > MAX_LIST_LEN {
            return Err(Error::TooMany { at: at.to_owned(), got: list.len(), limit: MAX_LIST_LEN });
        }
        for person in list {
            let id = person_id(person)
                .ok_or_else(|| Error::Person { at: at.to_owned(), person: short(person) })?;
            self.named.insert((id, role.to_owned()));
        }
        Ok(())
    }

    /// Returns the common roles of the authors.
    pub(crate) fn turn_authors<'a>(
        &self,
        speakers: impl Iterator<Item = &'a Author>,
    ) -> TurnAuthors {
        let (mut ids, mut common) = (BTreeSet::new(), None::<BTreeSet<String>>);
        for speaker in speakers {
            let roles = self.roles(speaker);
            common = Some(match common {
                Some(common) => common.intersection(&roles).cloned().collect(),
                None => roles,
            });
            ids.insert(speaker.id.as_str());
        }
        let Some(mut roles) = common else { return TurnAuthors::default() };
        if !roles.contains(MEMBER) {
            roles.insert(GUEST.to_owned());
        }
        let mut ids = ids.into_iter();
        let user = ids.next().filter(|_| ids.next().is_none());
        TurnAuthors { user: user.map(str::to_owned), roles: roles.into_iter().collect() }
    }

    fn roles(&self, speaker: &Author) -> BTreeSet<String> {
        let id = person_id(&speaker.id);
        // No list can name an author who may be anybody.
        let id = id.filter(|_| speaker.is_verified());
        let named = self.named.iter().filter(|(who, _)| Some(who) == id.as_ref());
        let mut roles: BTreeSet<String> =
            named.map(|(_, role)| role.clone()).chain(speaker.roles.iter().cloned()).collect();
        roles.remove(GUEST);
        if roles.contains(OWNER) || roles.contains(ADMIN) {
            roles.insert(MEMBER.to_owned());
        }
        roles
    }
}

impl super::compiled_policy::CompiledPolicy {
    /// Ids of the owners that the settings name, sorted.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let named = self.people.named.iter();
        named.filter(|(_, role)| role == OWNER).map(|(id, _)| id.as_str())
    }

    /// Returns the common roles of a turn's authors, by the settings of the tenant and the agent.
    #[must_use]
    pub fn turn_authors<'a>(&self, speakers: impl IntoIterator<Item = &'a Author>) -> TurnAuthors {
        self.people.turn_authors(speakers.into_iter())
    }
}

/// Normalises a person's id: channel in lower case, the id there unchanged.
fn person_id(person: &str) -> Option<String> {
    let (door, id) = person.trim().split_once(':')?;
    let (door, id) = (door.trim().to_lowercase(), id.trim());
    let is_word = !door.is_empty()
        && door.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let is_id = !id.is_empty() && id != "*" && !id.contains(char::is_control);
    (is_word && is_id && person.len() <= MAX_NAME_BYTES).then(|| format!("{door}:{id}"))
}

/// Checks and lower-cases a role from a list.
fn checked_role(role: &str, at: &str) -> Result<String, Error> {
    let wrong = |wanted| Error::Role { at: at.to_owned(), role: short(role), wanted };
    let word = role.trim().to_lowercase();
    match word.as_str() {
        OWNER => Err(wrong("name owners in `owners`")),
        GUEST => Err(wrong("everybody is a guest who is named nowhere")),
        word if word.is_empty()
            || word.len() > MAX_NAME_BYTES
            || word.contains(|c: char| c.is_whitespace() || c.is_control()) =>
        {
            Err(wrong("write a word without spaces, as `vip`"))
        }
        _ => Ok(word),
    }
}

/// Whether all authors are owners, by the settings of a tenant and one of its agents; `false`
/// without authors.
///
/// # Errors
///
/// If the settings are not a valid policy.
pub fn are_owners<'a>(
    tenant: &Value,
    agent: &Value,
    speakers: impl IntoIterator<Item = &'a Author>,
) -> Result<bool, Error> {
    let read = |says: &Value| {
        Settings::deserialize(says).map_err(|error| Error::Form(short(&error.to_string())))
    };
    let people = NamedPeople::new(&read(tenant)?, &read(agent)?)?;
    Ok(people.turn_authors(speakers.into_iter()).is_owner())
}

/// Returns the person behind an author, as [`person`](crate::person) names them. `None` for a
/// key, for an author who is not verified, and on a channel whose ids each account has for itself.
#[must_use]
pub fn person_of_author(author: &str) -> Option<&str> {
    let (channel, id) = author.split_once(':')?;
    let is_person = crate::person::id_of(author).is_some() || has_platform_wide_ids(channel);
    (is_person && !id.is_empty()).then_some(author)
}

#[cfg(test)]
mod tests {
    use holdfast_types::PersonId;
    use serde_json::json;

    use super::*;

    fn people(tenant: serde_json::Value) -> Result<NamedPeople, Error> {
        NamedPeople::new(&Settings::parse(&tenant.to_string())?, &Settings::default())
    }

    fn author(id: &str, roles: &[&str]) -> Author {
        Author { id: id.to_owned(), roles: roles.iter().map(|&role| role.to_owned()).collect() }
    }

    fn roles(people: &NamedPeople, speakers: &[Author]) -> String {
        people.turn_authors(speakers.iter()).roles.join(" ")
    }

    #[test]
    fn everybody_has_the_roles_that_the_table_says() {
        let people = people(json!({
            "owners": ["Telegram:7", "irc-unverified:anna"],
            "roles": { "vip": ["telegram:8"], "admin": ["slack:U1"], "member": ["slack:U2"] }
        }))
        .unwrap();

        for (speaker, expected) in [
            (author("telegram:7", &[]), "member owner"),
            (author("telegram:8", &[]), "guest vip"),
            (author("telegram:8", &["member"]), "member vip"),
            (author("slack:U1", &[]), "admin member"),
            (author("slack:U2", &[]), "member"),
            (author("slack:u1", &[]), "guest"),
            (author("telegram:9", &[]), "guest"),
            (author("discord:7", &[]), "guest"),
            (Author::unverified("telegram", "7"), "guest"),
            (Author::unverified("irc", "anna"), "guest"),
            (author("api:key_1", &["owner", "admin", "member"]), "admin member owner"),
        ] {
            assert_eq!(roles(&people, std::slice::from_ref(&speaker)), expected, "{speaker:?}");
        }
        let of = |id| people.turn_authors([&author(id, &[])].into_iter()).is_guest();
        assert_eq!([of("telegram:8"), of("telegram:7"), of("telegram:9")], [false, false, true]);
        assert_eq!(people.turn_authors([].into_iter()), TurnAuthors::default());
    }

    #[test]
    fn several_who_speak_have_what_all_of_them_have() {
        let people = people(json!({ "owners": ["telegram:7"] })).unwrap();
        let (owner, stranger) = (author("telegram:7", &[]), author("telegram:9", &[]));

        assert_eq!(roles(&people, &[owner.clone(), stranger.clone()]), "guest");
        assert!(people.turn_authors([&owner, &stranger].into_iter()).is_guest());
        assert!(people.turn_authors([&stranger].into_iter()).is_guest());
        assert!(!people.turn_authors([&owner].into_iter()).is_guest());
        assert!(TurnAuthors::default().is_guest());
        assert_eq!(
            people.turn_authors([&owner, &owner].into_iter()).user.as_deref(),
            Some("telegram:7")
        );
        assert_eq!(people.turn_authors([&owner, &stranger].into_iter()).user, None);

        let (tenant, agent) = (json!({ "owners": ["telegram:7"] }), json!({}));
        let are = |speakers: &[Author]| are_owners(&tenant, &agent, speakers).unwrap();
        assert_eq!(
            (are(std::slice::from_ref(&owner)), are(&[owner, stranger]), are(&[])),
            (true, false, false)
        );
        assert!(are_owners(&json!({ "owners": 7 }), &agent, []).is_err());
    }

    #[test]
    fn who_could_be_nobody_and_roles_that_are_not_given_are_refused() {
        for wrong in [
            json!({ "owners": ["12345"] }),
            json!({ "owners": ["telegram:*"] }),
            json!({ "owners": [":7"] }),
            json!({ "owners": ["telegram:"] }),
            json!({ "roles": { "owner": ["telegram:7"] } }),
            json!({ "roles": { "guest": [] } }),
            json!({ "roles": { "v i p": [] } }),
        ] {
            assert!(people(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_author_is_a_person_if_the_id_names_one_everywhere() {
        let person = format!("person:{}", PersonId::generate());
        for (author, is_person) in [
            (person.as_str(), true),
            ("person:anna", false),
            ("telegram:42", true),
            ("telegram:", false),
            ("webhook:42", false),
            ("telegram-unverified:42", false),
            ("api:key_0123456789abcdef0123456789abcdef", false),
        ] {
            assert_eq!(person_of_author(author), is_person.then_some(author), "{author}");
        }
    }
}
