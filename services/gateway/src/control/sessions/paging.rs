//! Page tokens; opaque to callers.

use holdfast_session::{ListCursor, SessionCursor, SessionView};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{Error, control::non_empty};

/// Page of a list of which one item more was asked for, which tells whether there is another page.
pub(in crate::control) fn split_page<T>(mut items: Vec<T>, most: i64) -> (Vec<T>, bool) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let more = items.len() > most;
    items.truncate(most);
    (items, more)
}

/// Token of the page after this place.
pub(in crate::control) fn list_token(last: ListCursor) -> String {
    format!("{}-{}", last.at.as_microsecond(), last.id.simple())
}

/// Place of a token; `None` for an empty one.
pub(in crate::control) fn parse_list_token(token: String) -> Result<Option<ListCursor>, Error> {
    let parse = |token: &str| {
        let (at, id) = token.split_once('-')?;
        Some(ListCursor { at: parse_time(at)?, id: Uuid::try_parse(id).ok()? })
    };
    parse_token(token, parse)
}

/// Token of the page after this session, in the order of last use.
pub(super) fn session_token(last: &SessionView) -> String {
    cursor_token(SessionCursor {
        used_hour: last.used_hour,
        updated_at: last.updated_at,
        id: last.id,
    })
}

pub(super) fn cursor_token(cursor: SessionCursor) -> String {
    let hour = cursor.used_hour.map(|hour| hour.as_microsecond().to_string()).unwrap_or_default();
    format!("{hour}-{}-{}", cursor.updated_at.as_microsecond(), cursor.id.as_uuid().simple())
}

pub(super) fn parse_session_token(token: String) -> Result<Option<SessionCursor>, Error> {
    parse_token(token, parse_cursor)
}

pub(super) fn parse_cursor(token: &str) -> Option<SessionCursor> {
    let [hour, at, id] = token.split('-').collect::<Vec<_>>()[..] else { return None };
    let used_hour = if hour.is_empty() { None } else { Some(parse_time(hour)?) };
    let id = Uuid::try_parse(id).ok()?.into();
    Some(SessionCursor { used_hour, updated_at: parse_time(at)?, id })
}

fn parse_time(micros: &str) -> Option<Timestamp> {
    Timestamp::from_microsecond(micros.parse().ok()?).ok()
}

/// Reads a token; `None` for an empty one.
pub(super) fn parse_token<T>(
    token: String,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(token) = non_empty(token) else { return Ok(None) };
    let refused = || Error::UnknownValue {
        field: "page_token",
        given: token.chars().take(80).collect(),
        wanted: "`next_page_token` of an earlier answer",
    };
    parse(&token).map(Some).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use holdfast_types::SessionId;

    use super::*;

    #[test]
    fn what_is_no_page_token_is_refused() {
        let id = SessionId::generate().as_uuid().simple();

        assert!(parse_session_token(format!("-1700000000000000-{id}")).is_ok());
        assert!(parse_session_token(format!("1699999200000000-1700000000000000-{id}")).is_ok());
        for token in ["2", "a-b-c", "-1700000000000000-", &id.to_string(), "a-1-2"] {
            assert!(parse_session_token(token.to_owned()).is_err(), "{token}");
        }
        for token in ["2", "a-b", "1700000000000000-", "1-2"] {
            assert!(parse_list_token(token.to_owned()).is_err(), "{token}");
        }
    }

    #[test]
    fn a_token_names_the_place_that_it_was_made_of() {
        let at = Timestamp::from_microsecond(1_700_000_000_000_001).unwrap();
        let place = ListCursor { at, id: Uuid::now_v7() };

        assert_eq!(parse_list_token(list_token(place)).unwrap(), Some(place));
        assert_eq!(parse_list_token(String::new()).unwrap(), None);
    }
}
