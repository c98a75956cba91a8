//! To whom, where and when a tool is shown (spec TOL-006, TOL-007).
//!
//! A tool that no filter names is shown to everyone. One that some filters name
//! is shown if one of them holds in whole: what is not given is not asked, what
//! is given must fit, and a fact that is not known fits nothing. What is not
//! shown cannot be called either.

use serde::{Deserialize, Serialize};

use super::{
    error::Error,
    subject::{LocalTime, Subject, Weekday},
};

/// When and to whom some tools are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// The tools: names, groups, patterns.
    pub tools: Vec<String>,
    /// Any of these roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<String>>,
    /// Any of these channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<String>>,
    /// Any of these chats, by the platform's ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chats: Option<Vec<String>>,
    /// Any of these users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Any of these days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<Vec<Weekday>>,
    /// Between these times of the tenant's day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<Hours>,
}

/// A window of the day: from `from` on, until before `to`; past midnight if `to` is earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hours {
    /// As `HH:MM`.
    pub from: String,
    /// As `HH:MM`; may be `24:00`.
    pub to: String,
}

/// A filter whose window is read.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    filter: Filter,
    window: Option<(u16, u16)>,
}

impl Shown {
    pub(crate) fn new(filter: &Filter, at: &str) -> Result<Self, Error> {
        let wrong = || Error::Window { at: format!("{at}.hours") };
        let window = match &filter.hours {
            Some(hours) => {
                let from = minute(&hours.from).filter(|from| *from < 1_440).ok_or_else(wrong)?;
                let to = minute(&hours.to).ok_or_else(wrong)?;
                // Read as `always` by some and as `never` by others.
                if from == to {
                    return Err(wrong());
                }
                Some((from, to))
            }
            None => None,
        };
        Ok(Self { filter: filter.clone(), window })
    }

    /// Whether the filter holds for someone.
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

/// The minute of the day that `HH:MM` names; 1440 for `24:00`.
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
