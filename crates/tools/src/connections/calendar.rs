//! The `calendar` tool: lists, creates, changes and deletes events.

use std::{fmt::Write as _, ops::Range};

use holdfast_types::{ConnectionKind, ConnectionSettings, Effect};
use jiff::{Timestamp, tz::TimeZone};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    ConnectionContext, Connections,
    caldav::{ChangeOutcome, Client, Resource},
    event_time::{self, EventTime, format_utc},
    ics::{Ics, escaped},
    open_connection,
};
use crate::{Call, Output, Tool, ToolError, untrusted};

/// Maximum number of events that are listed.
const MAX_LISTED_EVENTS: usize = 100;

/// Maximum length of the list that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 20_000;

/// Maximum length of a text of an event, in bytes.
const MAX_TEXT_LEN: usize = 10_000;

/// List, create, update and delete events in a person's calendar.
///
/// Times: `2026-12-01T09:00:00+01:00`, or without an offset in `time_zone`; a date is a whole day.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarInput {
    /// `list` takes `start` and `end`; `create` a `title` and a `start`; `update` and `delete` an
    /// `id` that `list` showed.
    action: Action,
    /// Which calendar, if there are several.
    #[serde(default)]
    connection: Option<String>,
    /// Which event.
    #[serde(default)]
    id: Option<String>,
    /// The version that `list` showed: if it has changed since, nothing is done.
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    start: Option<String>,
    #[serde(default)]
    end: Option<String>,
    /// An IANA name, as `Europe/Berlin`.
    #[serde(default)]
    time_zone: Option<String>,
    #[serde(default)]
    location: Option<String>,
    #[serde(default)]
    description: Option<String>,
    /// The event repeats, and all of the series is meant.
    #[serde(default)]
    series: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    List,
    Create,
    Update,
    Delete,
}

#[derive(Debug)]
pub struct Calendar<C>(ConnectionContext<C>);

impl<C> Calendar<C> {
    pub(super) const fn new(context: ConnectionContext<C>) -> Self {
        Self(context)
    }
}

impl<C: Connections> Tool<Output> for Calendar<C> {
    const NAME: &'static str = "calendar";
    const EFFECT: Effect = Effect::Acts;
    type Input = CalendarInput;

    async fn call(&self, call: Call, input: CalendarInput) -> Result<Output, ToolError> {
        let (connections, kind) = (&*self.0.connections, ConnectionKind::Caldav);
        let opened = open_connection(connections, &call, kind, input.connection.as_deref()).await?;
        let ConnectionSettings::Caldav(to) = &opened.to else {
            return Err(ToolError::Tell("that connection is no calendar any more".to_owned()));
        };
        let client = Client::new(&self.0.guard, to, opened.secret.as_ref());
        let client = client.map_err(ToolError::Tell)?;
        let zone = match input.time_zone.as_deref() {
            Some(name) => event_time::find_zone(name).map_err(ToolError::Tell)?,
            None => TimeZone::UTC,
        };
        let done = match input.action {
            Action::List => list(&client, &call, &opened.name, &input, zone).await,
            Action::Create => create(&client, &call, &input).await,
            Action::Update => update(&client, &input).await,
            Action::Delete => delete(&client, &input).await,
        };
        let output = done.map_err(ToolError::Tell)?;
        Ok(output.record(json!({ "connection": opened.name })))
    }
}

async fn list(
    client: &Client<'_>,
    call: &Call,
    name: &str,
    input: &CalendarInput,
    zone: TimeZone,
) -> Result<Output, String> {
    let said = |field: &'static str, text: &Option<String>| {
        let text = required(field, text.as_deref())?;
        EventTime::parse(field, text, input.time_zone.as_deref())?.start(&zone)
    };
    let (from, to) = (said("start", &input.start)?, said("end", &input.end)?);
    if to <= from {
        return Err("`end` is not after `start`".to_owned());
    }
    let mut found: Vec<(String, String)> = Vec::new();
    for resource in client.list(from, to).await? {
        for event in resource.ics.events() {
            let start = resource.ics.get(&event, "DTSTART");
            let order = start
                .map(|start| event_time::format_for_model(start, &TimeZone::UTC))
                .unwrap_or_default();
            found.push((order, event_line(&resource, &event, &zone)));
        }
    }
    found.sort();
    let total = found.len();
    if total == 0 {
        return Ok("There is nothing in that time.".into());
    }
    let mut text: String =
        found.into_iter().take(MAX_LISTED_EVENTS).map(|(_, line)| line).collect();
    if total > MAX_LISTED_EVENTS {
        // Writing to a `String` cannot fail.
        let _ =
            writeln!(text, "({total} events, of which the first {MAX_LISTED_EVENTS} are shown)");
    }
    Ok(untrusted(&call.key, &format!("the calendar `{name}`"), &text, MAX_SHOWN_CHARS).into())
}

/// Formats an event for the model.
fn event_line(resource: &Resource, event: &Range<usize>, zone: &TimeZone) -> String {
    let text = |name| {
        let text = resource.ics.get(event, name).map(super::ics::Line::text).unwrap_or_default();
        let short: String = text.chars().take(300).collect();
        crate::untrusted::one_line(&short)
    };
    let time =
        |name| resource.ics.get(event, name).map(|line| event_time::format_for_model(line, zone));
    let mut told = format!("- {}", time("DTSTART").unwrap_or_default());
    if let Some(end) = time("DTEND") {
        // Writing to a `String` cannot fail.
        let _ = write!(told, " to {end}");
    }
    let _ = write!(told, ": {}", text("SUMMARY"));
    for (name, before) in [("LOCATION", "; at "), ("DESCRIPTION", "; "), ("STATUS", "; ")] {
        let text = text(name);
        if !text.is_empty() {
            let _ = write!(told, "{before}{text}");
        }
    }
    if repeats(resource, event) {
        told.push_str("; repeats");
    }
    let _ = writeln!(told, " [id {}, version {}]", resource.id, resource.etag);
    told
}

fn repeats(resource: &Resource, event: &Range<usize>) -> bool {
    let has = |name| resource.ics.get(event, name).is_some();
    has("RRULE") || has("RDATE") || has("RECURRENCE-ID")
}

async fn create(client: &Client<'_>, call: &Call, input: &CalendarInput) -> Result<Output, String> {
    let title = check_len("title", required("title", input.title.as_deref())?)?;
    let start = required("start", input.start.as_deref())?;
    let start = EventTime::parse("start", start, input.time_zone.as_deref())?;
    let end = match &input.end {
        Some(end) => EventTime::parse("end", end, input.time_zone.as_deref())?,
        None => start.default_end()?,
    };
    if !start.is_before(end)? {
        return Err("`end` is not after `start`".to_owned());
    }
    // The name follows from the call's key, so a repeated call creates no second event.
    let name = event_name(&call.key);
    let ((start_as, start), (end_as, end)) = (start.line(), end.line());
    let mut properties = vec![
        ("UID", "", format!("{name}@holdfast")),
        ("DTSTAMP", "", format_utc(Timestamp::now())),
        ("DTSTART", start_as, start),
        ("DTEND", end_as, end),
        ("SUMMARY", "", escaped(title)),
    ];
    let texts = [("LOCATION", &input.location), ("DESCRIPTION", &input.description)];
    for (property, text) in texts {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            properties.push((property, "", escaped(check_len(property, text)?)));
        }
    }
    let id = format!("{name}.ics");
    match client.create(&id, &Ics::event(&properties)).await? {
        ChangeOutcome::Done => Ok(format!("The event was made; its id is {id}.").into()),
        ChangeOutcome::Stale => Ok(format!("The event is there already; its id is {id}.").into()),
        ChangeOutcome::Missing => {
            Err("the calendar is not there: the connection's `url` is wrong".to_owned())
        }
    }
}

async fn update(client: &Client<'_>, input: &CalendarInput) -> Result<Output, String> {
    let mut found = load_event(client, input).await?;
    let mut event = found.ics.main_event().ok_or("there is no event in it")?;
    let times = match (&input.start, &input.end) {
        (None, None) => None,
        (Some(start), Some(end)) => {
            let zone = input.time_zone.as_deref();
            Some((EventTime::parse("start", start, zone)?, EventTime::parse("end", end, zone)?))
        }
        (Some(_), None) | (None, Some(_)) => {
            return Err(
                "give `start` and `end` together: one alone could contradict the other".to_owned()
            );
        }
    };
    if let Some((start, end)) = times {
        if !start.is_before(end)? {
            return Err("`end` is not after `start`".to_owned());
        }
        event = found.ics.remove(event, "DURATION");
        for (name, when) in [("DTEND", end), ("DTSTART", start)] {
            let (params, value) = when.line();
            event = found.ics.set(event, name, params, &value);
        }
    }
    let texts = [
        ("SUMMARY", &input.title),
        ("LOCATION", &input.location),
        ("DESCRIPTION", &input.description),
    ];
    if times.is_none() && texts.iter().all(|(_, text)| text.is_none()) {
        return Err("nothing is to be changed: give a `title`, times, a `location` or a \
                    `description`"
            .to_owned());
    }
    for (name, text) in texts {
        match text.as_deref() {
            None => {}
            Some("") => event = found.ics.remove(event, name),
            Some(text) => event = found.ics.set(event, name, "", &escaped(check_len(name, text)?)),
        }
    }
    let sequence = found.ics.get(&event, "SEQUENCE").and_then(|line| line.value().parse().ok());
    let sequence: u32 = sequence.unwrap_or(0_u32).saturating_add(1);
    let now = format_utc(Timestamp::now());
    for (name, value) in
        [("SEQUENCE", sequence.to_string()), ("LAST-MODIFIED", now.clone()), ("DTSTAMP", now)]
    {
        event = found.ics.set(event, name, "", &value);
    }
    match client.update(&found).await? {
        ChangeOutcome::Done => Ok("The event was changed.".into()),
        ChangeOutcome::Stale | ChangeOutcome::Missing => Err(stale_message()),
    }
}

async fn delete(client: &Client<'_>, input: &CalendarInput) -> Result<Output, String> {
    let found = load_event(client, input).await?;
    match client.delete(&found).await? {
        ChangeOutcome::Done => Ok("The event was deleted.".into()),
        ChangeOutcome::Stale | ChangeOutcome::Missing => Err(stale_message()),
    }
}

/// Loads the event that the model named, and checks its version.
async fn load_event(client: &Client<'_>, input: &CalendarInput) -> Result<Resource, String> {
    let id = required("id", input.id.as_deref())?;
    let missing = || "there is no event of that `id`; `list` shows those there are".to_owned();
    let found = client.get(id).await?.ok_or_else(missing)?;
    if input.version.as_ref().is_some_and(|version| *version != found.etag) {
        return Err(stale_message());
    }
    let event = found.ics.main_event().ok_or_else(missing)?;
    if repeats(&found, &event) && !input.series {
        return Err("that event repeats, and only the whole series can be changed: ask whether \
                    that is meant, then say `series`"
            .to_owned());
    }
    Ok(found)
}

fn stale_message() -> String {
    "the event has changed since: `list` it again, and decide anew; nothing was done".to_owned()
}

fn required<'a>(field: &str, given: Option<&'a str>) -> Result<&'a str, String> {
    let given = given.map(str::trim).filter(|given| !given.is_empty());
    given.ok_or_else(|| format!("`{field}` is missing"))
}

fn check_len<'a>(field: &str, text: &'a str) -> Result<&'a str, String> {
    match text.len() {
        got if got > MAX_TEXT_LEN => {
            let field = field.to_lowercase();
            Err(format!("the {field} is {got} bytes, and {MAX_TEXT_LEN} are the most"))
        }
        _ => Ok(text),
    }
}

/// Name of the event that a call creates.
fn event_name(key: &str) -> String {
    let digest = Sha256::digest(format!("calendar:{key}").as_bytes());
    digest[..16].iter().fold(String::new(), |mut name, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests;
