//! For whom, where and when a policy is asked.

use holdfast_types::{ModelId, SessionKind};
use serde::{Deserialize, Serialize};

use super::action::FsScope;

/// The facts of a turn that a policy may depend on.
///
/// They come from the mesh (membership, the session's row, the claim), never
/// from a model or a message's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The kind of session.
    pub kind: SessionKind,
    /// Whether the person who speaks is the agent's verified owner.
    pub is_owner: bool,
    /// Their roles in the tenant; the owner has the role `owner` besides.
    pub roles: Vec<String>,
    /// Their id.
    pub user: Option<String>,
    /// The channel, as in `telegram`.
    pub channel: Option<String>,
    /// The chat's id on the platform.
    pub chat: Option<String>,
    /// The model that thinks.
    pub model: Option<ModelId>,
    /// How commands are held in.
    pub sandbox: SandboxMode,
    /// How many spawns away from a person's session: 0 is that session.
    pub depth: u8,
    /// The agent's own list of tools; absent is all, empty none.
    pub tools: Option<Vec<String>>,
    /// What it was spawned with: bundle and white-list together; absent is all.
    pub bundle: Option<Vec<String>>,
    /// The toolbox of the behaviour; absent is all, empty none.
    pub toolbox: Option<Vec<String>>,
    /// The lists of the route and of the messages of this turn; each narrows.
    pub messages: Vec<Vec<String>>,
    /// What a behaviour or the spawning session leaves of the files; each narrows.
    pub scopes: Vec<FsScope>,
    /// The tenant's local time.
    pub now: Option<LocalTime>,
}

impl Subject {
    /// A session of a kind, of which nothing else is known.
    #[must_use]
    pub const fn new(kind: SessionKind) -> Self {
        Self {
            kind,
            is_owner: false,
            roles: Vec::new(),
            user: None,
            channel: None,
            chat: None,
            model: None,
            sandbox: SandboxMode::Isolated,
            depth: 0,
            tools: None,
            bundle: None,
            toolbox: None,
            messages: Vec::new(),
            scopes: Vec::new(),
            now: None,
        }
    }

    /// Whether the rules for subagents hold. A job's run is held to them too (C-15).
    pub(crate) const fn is_subagent(&self) -> bool {
        matches!(self.kind, SessionKind::Subagent | SessionKind::Cron) || self.depth > 0
    }

    /// Whether the rules for groups hold (C-42).
    pub(crate) const fn is_group(&self) -> bool {
        matches!(self.kind, SessionKind::Group | SessionKind::Topic)
    }

    /// Whether they have a role.
    pub(crate) fn has_role(&self, role: &str) -> bool {
        (self.is_owner && role.eq_ignore_ascii_case("owner"))
            || self.roles.iter().any(|own| own.eq_ignore_ascii_case(role))
    }
}

/// How commands and files are held in (C-41).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// They run where the runner runs.
    Off,
    /// Tools that need isolation are taken away.
    Restricted,
    /// They run in a sandbox.
    #[default]
    Isolated,
}

/// Who runs the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosting {
    /// Someone, for many tenants.
    Hosted,
    /// One tenant, for itself.
    Own,
}

impl SandboxMode {
    /// The mode of a session, given what the tenant asks for (C-39, C-40, C-41).
    ///
    /// Where many tenants share a house nothing runs outside a sandbox. In one's own, the
    /// owner's main session is trusted unless the tenant says otherwise.
    #[must_use]
    pub const fn of(hosting: Hosting, subject: &Subject, asked: Option<Self>) -> Self {
        match (hosting, asked) {
            (Hosting::Hosted, Some(Self::Off) | None) => Self::Isolated,
            (Hosting::Hosted | Hosting::Own, Some(asked)) => asked,
            (Hosting::Own, None) => {
                if matches!(subject.kind, SessionKind::Main) && subject.is_owner {
                    Self::Off
                } else {
                    Self::Isolated
                }
            }
        }
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "days need no explanation")]
pub enum Weekday {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Weekday {
    const ALL: [Self; 7] =
        [Self::Mon, Self::Tue, Self::Wed, Self::Thu, Self::Fri, Self::Sat, Self::Sun];
}

impl LocalTime {
    /// The moment so many days after Monday, at this hour and minute; `None` if there is none.
    #[must_use]
    pub fn of(days_since_monday: i8, hour: i8, minute: i8) -> Option<Self> {
        let at =
            |number: i8, limit: i8| (0..limit).contains(&number).then(|| number.unsigned_abs());
        let weekday = *Weekday::ALL.get(usize::from(at(days_since_monday, 7)?))?;
        let minute = u16::from(at(hour, 24)?) * 60 + u16::from(at(minute, 60)?);
        Some(Self { weekday, minute })
    }
}

/// A moment of the week, on the tenant's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// The day.
    pub weekday: Weekday,
    /// Minutes since midnight, 0 to 1439.
    pub minute: u16,
}
