//! CalDAV client: the parts of RFC 4791 and RFC 4918 that the calendar needs.

use std::fmt::Write as _;

use holdfast_types::Caldav;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use reqwest::{
    Method, RequestBuilder, StatusCode, Url,
    header::{ETAG, IF_MATCH, IF_NONE_MATCH},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    event_time::format_utc,
    http::{HttpResponse, RequestFailure, request, send, status_message},
    ics::Ics,
};
use holdfast_egress::Guard;

const DAV: &str = "DAV:";
const CALDAV: &str = "urn:ietf:params:xml:ns:caldav";

/// Maximum length of an event's id, in bytes.
const MAX_ID_LEN: usize = 200;

/// Event resource on the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// Last segment of its URL.
    pub(super) id: String,
    /// Version of the resource, as the server names it.
    pub(super) etag: String,
    pub(super) ics: Ics,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChangeOutcome {
    Done,
    /// The event to change has another version now, or the event to create exists already.
    Stale,
    Missing,
}

#[derive(Debug)]
pub(super) struct Client<'a> {
    guard: &'a Guard,
    url: Url,
    user: &'a str,
    secret: Option<&'a SecretString>,
}

impl<'a> Client<'a> {
    pub(super) fn new(
        guard: &'a Guard,
        to: &'a Caldav,
        secret: Option<&'a SecretString>,
    ) -> Result<Self, String> {
        let mut url = Guard::parse(&to.url).map_err(|refused| refused.to_string())?;
        // A calendar is a collection: without the slash its events would be resolved beside it.
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(Self { guard, url, user: &to.user, secret })
    }

    fn request(&self, method: &str, url: &Url) -> Result<RequestBuilder, RequestFailure> {
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| RequestFailure::NotSent("there is no such method".to_owned()))?;
        let request = request(self.guard, method, url)?;
        Ok(match (self.user, self.secret) {
            (_, None) => request,
            ("", Some(token)) => request.bearer_auth(token.expose_secret()),
            (user, Some(password)) => request.basic_auth(user, Some(password.expose_secret())),
        })
    }

    /// URL of an event. An id must be one path segment, so it cannot lead elsewhere.
    fn event_url(&self, id: &str) -> Result<Url, String> {
        let is_part = !id.is_empty()
            && id.len() <= MAX_ID_LEN
            && !matches!(id, "." | "..")
            && !id.contains(['/', '\\'])
            && !id.contains(char::is_control);
        let wrong = || "`id` is none that `list` shows".to_owned();
        if !is_part {
            return Err(wrong());
        }
        let mut url = self.url.clone();
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().push(id);
        Ok(url)
    }

    /// Lists the events between two times. Events of a series are listed one by one, if the server
    /// supports that.
    pub(super) async fn list(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Resource>, String> {
        let (from, to) = (format_utc(from), format_utc(to));
        let query = format!(
            r#"<?xml version="1.0" encoding="utf-8"?>
<C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav">
<D:prop><D:getetag/><C:calendar-data><C:expand start="{from}" end="{to}"/></C:calendar-data></D:prop>
<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT">
<C:time-range start="{from}" end="{to}"/>
</C:comp-filter></C:comp-filter></C:filter></C:calendar-query>"#
        );
        let asked = self.request("REPORT", &self.url).map_err(RequestFailure::read_message)?;
        let asked = asked
            .header("depth", "1")
            .header("content-type", "application/xml; charset=utf-8")
            .body(query);
        let answer = send(asked).await.map_err(RequestFailure::read_message)?;
        if answer.status != StatusCode::MULTI_STATUS {
            return Err(status_message(answer.status, &answer.headers));
        }
        resources(&answer.text)
    }

    /// Returns an event; `None` if there is none with this id.
    pub(super) async fn get(&self, id: &str) -> Result<Option<Resource>, String> {
        let place = self.event_url(id)?;
        let asked = self.request("GET", &place).map_err(RequestFailure::read_message)?;
        let answer = send(asked).await.map_err(RequestFailure::read_message)?;
        match answer.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            StatusCode::OK => {}
            status => return Err(status_message(status, &answer.headers)),
        }
        let Some(etag) = etag(&answer) else {
            return Err("the server does not say which version that is".to_owned());
        };
        let ics = Ics::parse(&answer.text).ok_or("the server's answer is no event")?;
        Ok(Some(Resource { id: id.to_owned(), etag, ics }))
    }

    /// Creates an event, unless there is one with this id.
    pub(super) async fn create(&self, id: &str, ics: &Ics) -> Result<ChangeOutcome, String> {
        let place = self.event_url(id)?;
        let put = self.request("PUT", &place).map_err(RequestFailure::change_message)?;
        let put = put.header(IF_NONE_MATCH, "*");
        change_outcome(send(with_event(put, ics)).await.map_err(RequestFailure::change_message)?)
    }

    /// Replaces an event, unless its version has changed.
    pub(super) async fn update(&self, event: &Resource) -> Result<ChangeOutcome, String> {
        let place = self.event_url(&event.id)?;
        let put = self.request("PUT", &place).map_err(RequestFailure::change_message)?;
        let put = put.header(IF_MATCH, &event.etag);
        change_outcome(
            send(with_event(put, &event.ics)).await.map_err(RequestFailure::change_message)?,
        )
    }

    /// Deletes an event, unless its version has changed.
    pub(super) async fn delete(&self, event: &Resource) -> Result<ChangeOutcome, String> {
        let place = self.event_url(&event.id)?;
        let delete = self.request("DELETE", &place).map_err(RequestFailure::change_message)?;
        let delete = delete.header(IF_MATCH, &event.etag);
        change_outcome(send(delete).await.map_err(RequestFailure::change_message)?)
    }
}

fn with_event(request: RequestBuilder, ics: &Ics) -> RequestBuilder {
    request.header("content-type", "text/calendar; charset=utf-8").body(ics.text())
}

fn etag(answer: &HttpResponse) -> Option<String> {
    answer.headers.get(ETAG)?.to_str().ok().map(str::to_owned)
}

fn change_outcome(answer: HttpResponse) -> Result<ChangeOutcome, String> {
    match answer.status {
        status if status.is_success() => Ok(ChangeOutcome::Done),
        StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Ok(ChangeOutcome::Stale),
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(ChangeOutcome::Missing),
        status if status.is_server_error() => {
            Err(RequestFailure::UnknownOutcome(status_message(status, &answer.headers))
                .change_message())
        }
        status => {
            Err(RequestFailure::NotSent(status_message(status, &answer.headers)).change_message())
        }
    }
}

/// Parses the events of a multi-status. Unreadable ones are left out.
fn resources(xml: &str) -> Result<Vec<Resource>, String> {
    let wrong = || "the server's answer is no list of events".to_owned();
    // The parser refuses document types, so entities can neither grow nor reach outside.
    let document = roxmltree::Document::parse(xml).map_err(|_| wrong())?;
    let root = document.root_element();
    if !root.has_tag_name((DAV, "multistatus")) {
        return Err(wrong());
    }
    let responses = root.children().filter(|node| node.has_tag_name((DAV, "response")));
    Ok(responses.filter_map(resource).collect())
}

fn resource(response: roxmltree::Node<'_, '_>) -> Option<Resource> {
    let text = |name: (&'static str, &'static str)| {
        let node = response.descendants().find(|node| node.has_tag_name(name))?;
        let text = node.children().filter_map(|child| child.text());
        Some(text.fold(String::new(), |mut all, text| {
            // Writing to a `String` cannot fail.
            let _ = write!(all, "{text}");
            all
        }))
    };
    let href = text((DAV, "href"))?;
    let part = href.trim().trim_end_matches('/').rsplit('/').next()?;
    Some(Resource {
        id: percent_decode_str(part).decode_utf8().ok()?.into_owned(),
        etag: text((DAV, "getetag")).unwrap_or_default().trim().to_owned(),
        ics: Ics::parse(&text((CALDAV, "calendar-data"))?)?,
    })
}
