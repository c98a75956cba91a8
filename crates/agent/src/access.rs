//! Whose a conversation is, and with which rights a turn of it acts.
//!
//! [`ConversationAccess::decide`] is the only place that decides it, from what is stored: the session's
//! key, and the authors of its messages with the roles that they had when the messages were accepted.
//! Prompt, files, memory, tools, approvals, reminders and the time zone read the result.

use holdfast_types::{DmScope, NameSpace, SessionKey, SessionKind, is_self_improvement};

use crate::{
    bootstrap::Audience,
    file_view::{FileSpace, FileView},
    person::{self, OWNER},
    policy::{TurnAuthors, person_of_author},
};

/// What is stored of a session, and the setting of its agent that matters here.
#[derive(Debug, Clone, Copy)]
pub struct SessionFacts<'a> {
    pub kind: SessionKind,
    pub key: &'a str,
    pub dm_scope: DmScope,
}

/// Whose a conversation is, and with which rights a turn of it acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationAccess {
    pub audience: Audience,
    /// Person whose memory, files and time zone these are, as in [`person`]; `None` if there is no
    /// particular one.
    pub person: Option<String>,
    /// Whose reminders the turn sets and lists; `None` if nobody would receive them.
    pub reminder_owner: Option<String>,
    /// Authors of what the turn answers, and the roles that all of them have.
    pub authors: TurnAuthors,
    /// Whether the turn acts for an owner of the agent.
    pub is_owner: bool,
    /// Files of the agent in which the turn works.
    pub files: FileSpace,
    kind: SessionKind,
}

impl ConversationAccess {
    /// Decides by the authors of a turn (`now`) and of the whole session (`always`).
    #[must_use]
    pub fn decide(session: &SessionFacts<'_>, now: TurnAuthors, always: &TurnAuthors) -> Self {
        let SessionFacts { kind, key, .. } = *session;
        let audience = audience(session, &now, always);
        let person = match (kind, audience) {
            // A job of somebody who does not own the agent is that person's.
            (SessionKind::Cron, Audience::Others) => {
                always.user.as_deref().and_then(person_of_author).map(str::to_owned)
            }
            _ => person::of_session(kind, key, audience),
        };
        Self {
            audience,
            reminder_owner: reminder_owner(session, audience, now.user.as_deref()),
            // Without known authors, the session determines the owner.
            is_owner: match now.roles.is_empty() {
                true => audience == Audience::Owner,
                false => now.is_owner(),
            },
            files: FileSpace::of(kind, key, audience, person.as_deref()),
            person,
            authors: now,
            kind,
        }
    }

    /// The same with the files that a subagent was given.
    #[must_use]
    pub fn with_files(self, files: Option<FileSpace>) -> Self {
        match files {
            Some(files) => Self { files, ..self },
            None => self,
        }
    }

    /// The files that the conversation sees and changes.
    #[must_use]
    pub fn file_view(&self) -> FileView {
        FileView::new(self.kind, self.audience, self.files.clone())
    }

    /// Whether the conversation is with a group.
    #[must_use]
    pub const fn is_group(&self) -> bool {
        matches!(self.kind, SessionKind::Group | SessionKind::Topic)
    }

    /// Whether all authors have the role.
    #[must_use]
    pub fn has_role(&self, role: &str) -> bool {
        self.authors.roles.iter().any(|held| held == role)
    }
}

/// The owner alone, nobody while the agent works by itself, or others too.
///
/// A conversation is the owner's only while everybody who has written what the turn reads owns the
/// agent: the turn's authors (`now`) and all of the session (`always`). Messages without an author
/// are the mesh's own and change nothing. Without any author only the sessions are the owner's in
/// which the mesh itself works, and the main session unless direct messages are routed to it.
///
/// The author of a job's messages is who made the job, so a job has its maker's rights.
fn audience(session: &SessionFacts<'_>, now: &TurnAuthors, always: &TurnAuthors) -> Audience {
    let SessionFacts { kind, key, dm_scope } = *session;
    // As private as a heartbeat, unless a person writes into the session.
    if kind == SessionKind::Work && is_self_improvement(key) && always.roles.is_empty() {
        return Audience::Owner;
    }
    let owner_or_mesh = |authors: &TurnAuthors| authors.roles.is_empty() || authors.is_owner();
    let (is_owners, audience) = match kind {
        SessionKind::Heartbeat => (owner_or_mesh(now) && owner_or_mesh(always), Audience::Owner),
        SessionKind::Cron | SessionKind::Work => {
            (owner_or_mesh(now) && owner_or_mesh(always), Audience::Agent)
        }
        SessionKind::Main => match dm_scope {
            DmScope::Main => (now.is_owner() && always.is_owner(), Audience::Owner),
            DmScope::PerPeer | DmScope::PerChannelPeer | DmScope::PerAccountChannelPeer => {
                (owner_or_mesh(now) && owner_or_mesh(always), Audience::Owner)
            }
        },
        SessionKind::Dm => (owner_or_mesh(now) && always.is_owner(), Audience::Owner),
        SessionKind::Api => (
            is_conversation_of_person(key) && owner_or_mesh(now) && always.is_owner(),
            Audience::Owner,
        ),
        SessionKind::Group | SessionKind::Topic | SessionKind::Subagent | SessionKind::Global => {
            (false, Audience::Others)
        }
    };
    if is_owners { audience } else { Audience::Others }
}

/// The conversation in which a reminder is delivered names its owner; else the author of the message.
fn reminder_owner(
    session: &SessionFacts<'_>,
    audience: Audience,
    author: Option<&str>,
) -> Option<String> {
    let parsed: SessionKey = session.key.parse().ok()?;
    let tail = |word: &str| {
        let agent = parsed.agent()?;
        let rest = session.key.strip_prefix(&format!("agent:{agent}:{word}:"))?;
        Some(rest.to_owned())
    };
    match session.kind {
        // The tail of a linked account's key would be another user on each channel.
        SessionKind::Dm => tail("dm").map(|tail| match tail.contains(":=") {
            true => person::named_by(&parsed).unwrap_or(tail),
            false => tail,
        }),
        SessionKind::Api => match parsed.name_space().and_then(NameSpace::person) {
            Some(person) => Some(person::of_id(person)),
            None => tail("api").map(|user| format!("api:{user}")),
        },
        SessionKind::Main => match audience {
            Audience::Owner | Audience::Agent => Some(OWNER.to_owned()),
            Audience::Others => author.map(str::to_owned),
        },
        SessionKind::Group | SessionKind::Topic | SessionKind::Global => author.map(str::to_owned),
        SessionKind::Cron | SessionKind::Work => match audience {
            Audience::Owner | Audience::Agent => Some(OWNER.to_owned()),
            // Others have no conversation that is known from here.
            Audience::Others => {
                author.filter(|author| person::id_of(author).is_some()).map(str::to_owned)
            }
        },
        SessionKind::Heartbeat => Some(OWNER.to_owned()),
        SessionKind::Subagent => None,
    }
}

/// Whether the session is one person's, and not a user's whom only a program knows.
fn is_conversation_of_person(key: &str) -> bool {
    let space = key.parse::<SessionKey>().ok().and_then(|key| key.name_space());
    space.and_then(NameSpace::person).is_some()
}

#[cfg(test)]
mod tests {
    use holdfast_types::PersonId;

    use super::*;
    use crate::policy::GUEST;

    fn authors(user: Option<&str>, roles: &[&str]) -> TurnAuthors {
        TurnAuthors {
            user: user.map(str::to_owned),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
        }
    }

    fn access(key: &str, now: TurnAuthors) -> ConversationAccess {
        let kind = key.parse::<SessionKey>().unwrap().kind();
        let dm_scope = DmScope::PerChannelPeer;
        let always = now.clone();
        ConversationAccess::decide(&SessionFacts { kind, key, dm_scope }, now, &always)
    }

    #[test]
    fn a_reminder_is_of_the_conversation_or_of_who_speaks_in_it() {
        let id = person::of_id(PersonId::generate());
        let seven = Some("telegram:7");
        let (owner, member): (&[&str], &[&str]) = (&["owner"], &["member"]);
        for (key, author, roles, expected) in [
            ("agent:main:main", seven, owner, Some("owner")),
            ("agent:main:main", seven, member, seven),
            ("agent:main:heartbeat", seven, member, Some("owner")),
            ("agent:main:dm:telegram:42", seven, member, Some("telegram:42")),
            ("agent:main:dm:any:a%3Ab", seven, member, Some("any:a%3Ab")),
            ("agent:main:dm:discord:=telegram%3A42", seven, member, Some("telegram:42")),
            ("agent:main:api:anna", seven, member, Some("api:anna")),
            ("agent:main:group:telegram:1", seven, member, seven),
            ("agent:main:group:telegram:1", None, member, None),
            ("agent:main:subagent:x", seven, member, None),
            ("agent:main:cron:a:b", None, &[], Some("owner")),
            ("agent:main:cron:a:b", seven, member, None),
            ("agent:main:cron:a:b", Some(&id), member, Some(&id)),
        ] {
            let found = access(key, authors(author, roles)).reminder_owner;
            assert_eq!(found.as_deref(), expected, "{key}");
        }
    }

    #[test]
    fn a_job_has_the_memory_and_the_files_of_who_made_it() {
        let id = person::of_id(PersonId::generate());
        let (job, cron) = ("agent:main:cron:a:b", |now| access("agent:main:cron:a:b", now));

        let of_person = cron(authors(Some(&id), &["member"]));
        assert_eq!(of_person.person.as_deref(), Some(&*id));
        assert_eq!(of_person.files, FileSpace::of_person(&id));
        let of_key = cron(authors(Some("api:key_1"), &["member"]));
        assert_eq!((of_key.person, of_key.files.to_string().as_str()), (None, "people/~cron=a"));
        let of_mesh = access(job, TurnAuthors::default());
        assert_eq!((of_mesh.person, of_mesh.files), (None, FileSpace::Whole));
    }

    #[test]
    fn without_authors_the_session_says_whether_the_owner_speaks() {
        for (key, roles, is_owner) in [
            ("agent:main:main", &[][..], true),
            ("agent:main:main", &["member"], false),
            ("agent:main:main", &["member", "owner"], true),
            ("agent:main:group:x:1", &["owner"], true),
            ("agent:main:group:x:1", &[], false),
            ("agent:main:work:a", &[], false),
        ] {
            assert_eq!(access(key, authors(None, roles)).is_owner, is_owner, "{key} {roles:?}");
        }
    }

    #[test]
    fn a_conversation_is_the_owner_s_only_if_all_who_wrote_in_it_are_owners() {
        let (owner, other) = (authors(None, &[crate::policy::OWNER]), authors(None, &[GUEST]));
        let mesh = TurnAuthors::default();
        let (by_channel, to_main) = (DmScope::PerChannelPeer, DmScope::Main);
        let own = format!("agent:main:api:{}trip", NameSpace::Person(PersonId::generate()));
        for (key, scope, now, always, who) in [
            ("agent:main:main", by_channel, &owner, &owner, Audience::Owner),
            ("agent:main:main", by_channel, &mesh, &owner, Audience::Owner),
            ("agent:main:main", by_channel, &mesh, &mesh, Audience::Owner),
            ("agent:main:main", by_channel, &other, &other, Audience::Others),
            ("agent:main:main", by_channel, &mesh, &other, Audience::Others),
            ("agent:main:main", by_channel, &owner, &other, Audience::Others),
            ("agent:main:main", to_main, &mesh, &mesh, Audience::Others),
            ("agent:main:main", to_main, &other, &other, Audience::Others),
            ("agent:main:main", to_main, &owner, &other, Audience::Others),
            ("agent:main:main", to_main, &owner, &owner, Audience::Owner),
            ("agent:main:heartbeat", to_main, &mesh, &mesh, Audience::Owner),
            ("agent:main:heartbeat", to_main, &owner, &owner, Audience::Owner),
            ("agent:main:heartbeat", to_main, &other, &other, Audience::Others),
            ("agent:main:dm:x:1", by_channel, &other, &other, Audience::Others),
            ("agent:main:dm:x:1", by_channel, &mesh, &mesh, Audience::Others),
            ("agent:main:dm:x:1", by_channel, &owner, &owner, Audience::Owner),
            ("agent:main:dm:x:1", by_channel, &mesh, &owner, Audience::Owner),
            ("agent:main:dm:x:1", DmScope::PerPeer, &owner, &other, Audience::Others),
            ("agent:main:group:x:1", by_channel, &owner, &owner, Audience::Others),
            ("agent:main:api:anna", by_channel, &owner, &owner, Audience::Others),
            (&own, by_channel, &owner, &owner, Audience::Owner),
            (&own, by_channel, &other, &other, Audience::Others),
            (&own, by_channel, &mesh, &mesh, Audience::Others),
            ("agent:main:cron:a:b", by_channel, &mesh, &mesh, Audience::Agent),
            ("agent:main:cron:a:b", to_main, &owner, &owner, Audience::Agent),
            ("agent:main:cron:a:b", by_channel, &other, &other, Audience::Others),
            ("agent:main:cron:a:b", by_channel, &owner, &other, Audience::Others),
            ("agent:main:work:a", by_channel, &mesh, &mesh, Audience::Agent),
            ("agent:main:work:self-improve", by_channel, &mesh, &mesh, Audience::Owner),
            ("agent:main:work:self-improve", by_channel, &owner, &owner, Audience::Agent),
            ("agent:main:work:a", by_channel, &other, &other, Audience::Others),
            ("global", by_channel, &owner, &owner, Audience::Others),
        ] {
            let kind = key.parse::<SessionKey>().unwrap().kind();
            let session = SessionFacts { kind, key, dm_scope: scope };
            assert_eq!(audience(&session, now, always), who, "{key} {scope:?} {now:?}");
        }
    }
}
