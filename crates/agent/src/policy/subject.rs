//! Subject of a policy: who asks, where and when.

use holdfast_types::{ModelId, SessionKind};
use serde::{Deserialize, Serialize};

/// Facts of a turn that a policy may depend on.
///
/// They come from the mesh (membership, the session's row, the claim), never from a model or a
/// message's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub kind: SessionKind,
    /// Whether the author is the agent's verified owner.
    pub is_owner: bool,
    /// Roles in the tenant; the owner has `owner` too.
    pub roles: Vec<String>,
    pub user: Option<String>,
    pub channel: Option<String>,
    /// Chat id on the platform.
    pub chat: Option<String>,
    pub model: Option<ModelId>,
    /// The agent's own list of tools; absent is all, empty none.
    pub tools: Option<Vec<String>>,
    /// Tools that the session was spawned with, of bundle and list; absent is all.
    pub bundle: Option<Vec<String>>,
    /// Toolbox of the behaviour; absent is all, empty none.
    pub toolbox: Option<Vec<String>>,
    /// Lists of the route and of this turn's messages; each restricts further.
    pub messages: Vec<Vec<String>>,
    /// Local time of the tenant.
    pub now: Option<LocalTime>,
}

impl Subject {
    /// Creates a subject without any other facts.
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
            tools: None,
            bundle: None,
            toolbox: None,
            messages: Vec::new(),
            now: None,
        }
    }

    /// Whether the rules for subagents apply. They apply to job runs too (C-15).
    pub(crate) const fn is_subagent(&self) -> bool {
        matches!(self.kind, SessionKind::Subagent | SessionKind::Cron)
    }

    /// Whether the rules for groups apply (C-42).
    pub(crate) const fn is_group(&self) -> bool {
        matches!(self.kind, SessionKind::Group | SessionKind::Topic)
    }

    pub(crate) fn has_role(&self, role: &str) -> bool {
        (self.is_owner && role.eq_ignore_ascii_case("owner"))
            || self.roles.iter().any(|own| own.eq_ignore_ascii_case(role))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Creates a time from the days since Monday, the hour and the minute; `None` if one is out of
    /// range.
    #[must_use]
    pub fn of(days_since_monday: i8, hour: i8, minute: i8) -> Option<Self> {
        let at =
            |number: i8, limit: i8| (0..limit).contains(&number).then(|| number.unsigned_abs());
        let weekday = *Weekday::ALL.get(usize::from(at(days_since_monday, 7)?))?;
        let minute = u16::from(at(hour, 24)?) * 60 + u16::from(at(minute, 60)?);
        Some(Self { weekday, minute })
    }
}

/// Time of the week in the tenant's time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    pub weekday: Weekday,
    /// Minutes since midnight, 0 to 1439.
    pub minute: u16,
}
