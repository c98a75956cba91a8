//! Visibility filters: users, places and times for which a tool is shown (spec TOL-006, TOL-007).
//!
//! A tool that no filter names is always shown. Other tools are shown if at least one of their
//! filters matches completely: absent conditions match, and an unknown fact matches no condition.
//! Tools that are not shown cannot be called either.

use serde::{Deserialize, Serialize};

use super::{
    error::Error,
    subject::{LocalTime, Subject, Weekday},
};

/// Condition under which some tools are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VisibilityFilter {
    pub tools: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<String>>,
    /// Chat ids on the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chats: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<Vec<Weekday>>,
    /// In the tenant's time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<Hours>,
}

/// Time window that includes `from` and excludes `to`; spans midnight if `to` is earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hours {
    /// As `HH:MM`.
    pub from: String,
    /// As `HH:MM`; may be `24:00`.
    pub to: String,
}

/// Filter with its parsed time window.
#[derive(Debug, Clone)]
pub(crate) struct BoundFilter {
    filter: VisibilityFilter,
    window: Option<(u16, u16)>,
}

impl BoundFilter {
    pub(crate) fn new(filter: &VisibilityFilter, at: &str) -> Result<Self, Error> {
        let wrong = || Error::Window { at: format!("{at}.hours") };
        let window = match &filter.hours {
            Some(hours) => {
                let from = minute(&hours.from).filter(|from| *from < 1_440).ok_or_else(wrong)?;
                let to = minute(&hours.to).ok_or_else(wrong)?;
                // Ambiguous: could mean always or never.
                if from == to {
                    return Err(wrong());
                }
                Some((from, to))
            }
            None => None,
        };
        Ok(Self { filter: filter.clone(), window })
    }

    pub(crate) fn holds(&self, subject: &Subject) -> bool {
        let filter = &self.filter;
        let any_of = |wanted: &Option<Vec<String>>, own: Option<&str>| match (wanted, own) {
            (None, _) => true,
            (Some(wanted), Some(own)) => wanted.iter().any(|wanted| wanted == own),
            (Some(_), None) => false,
        };
        let channel = || match (&filter.channels, &subject.channel) {
            (None, _) => true,
            (Some(wanted), Some(own)) => wanted.iter().any(|any| any.eq_ignore_ascii_case(own)),
            (Some(_), None) => false,
        };
        let role = || {
            let wanted = filter.roles.as_ref();
            wanted.is_none_or(|wanted| wanted.iter().any(|role| subject.has_role(role)))
        };
        role()
            && channel()
            && any_of(&filter.chats, subject.chat.as_deref())
            && any_of(&filter.users, subject.user.as_deref())
            && self.is_time(subject.now)
    }

    fn is_time(&self, now: Option<LocalTime>) -> bool {
        if self.filter.days.is_none() && self.window.is_none() {
            return true;
        }
        let Some(now) = now else { return false };
        let is_day = self.filter.days.as_ref().is_none_or(|days| days.contains(&now.weekday));
        let is_hour = self.window.is_none_or(|(from, to)| {
            if from < to {
                (from..to).contains(&now.minute)
            } else {
                now.minute >= from || now.minute < to
            }
        });
        is_day && is_hour
    }
}

/// Parses `HH:MM` to the minute of the day; 1440 for `24:00`.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |part: &str| {
        let is_two_digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u16>().ok().filter(|_| is_two_digits)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let total = hours * 60 + minutes;
    (minutes < 60 && total <= 1_440).then_some(total)
}
