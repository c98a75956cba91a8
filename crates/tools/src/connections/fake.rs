//! Fake connections, and servers with the real protocols on this machine.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
    routing::any,
};
use holdfast_types::{ConnectionKind, ConnectionSettings};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{ConnectionContext, Connections, OpenConnection};
use crate::{
    Call, Registry,
    web::{Web, fake::Answers},
};

/// Connections that every call may use.
#[derive(Debug, Default)]
pub(crate) struct Vault(pub(crate) BTreeMap<&'static str, (ConnectionSettings, &'static str)>);

impl Vault {
    pub(crate) fn with(
        mut self,
        name: &'static str,
        kind: ConnectionKind,
        settings: Value,
        secret: &'static str,
    ) -> Self {
        self.0.insert(name, (ConnectionSettings::from_settings(kind, settings).unwrap(), secret));
        self
    }
}

impl Connections for Vault {
    async fn usable(&self, _: &Call, kind: ConnectionKind) -> anyhow::Result<Vec<String>> {
        let of_kind = self.0.iter().filter(|(_, (to, _))| to.kind() == kind);
        Ok(of_kind.map(|(name, _)| (*name).to_owned()).collect())
    }

    async fn open(&self, _: &Call, name: &str) -> anyhow::Result<Option<OpenConnection>> {
        Ok(self.0.get_key_value(name).map(|(name, (to, secret))| OpenConnection {
            name: (*name).to_owned(),
            to: to.clone(),
            secret: Some((*secret).into()),
        }))
    }
}

/// Builds the tools; `allow` lists addresses that the guard lets through.
pub(crate) fn tools(vault: Vault, allow: &[&str]) -> Registry {
    let allow = allow.iter().map(|&entry| entry.to_owned()).collect();
    let web = Web { allow, ..Web::default() };
    let context =
        ConnectionContext::new(Arc::new(vault), &web, Arc::new(Answers::default())).unwrap();
    Registry::default().with_connection_context(context).unwrap()
}

/// CalDAV server: `PUT`, `GET`, `DELETE` with entity tags, and `REPORT` (RFC 4791, sections 5.3 and
/// 7.8).
#[derive(Debug, Clone, Default)]
pub(crate) struct Dav(Arc<Mutex<DavState>>);

#[derive(Debug, Default)]
pub(crate) struct DavState {
    /// Events by the last segment of their URL, each with its version.
    pub(crate) events: BTreeMap<String, (u32, String)>,
    pub(crate) versions: u32,
    /// Requests: method, path, body.
    pub(crate) asked: Vec<(String, String, String)>,
    pub(crate) authorization: String,
}

impl Dav {
    pub(crate) fn state(&self) -> MutexGuard<'_, DavState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, id: &str, ics: &str) {
        let mut state = self.state();
        state.versions += 1;
        let version = state.versions;
        state.events.insert(id.to_owned(), (version, ics.to_owned()));
    }

    pub(crate) async fn start(&self) -> anyhow::Result<crate::web::fake::Server> {
        let routes = Router::new()
            .route("/cal/", any(Self::collection))
            .route("/cal/{id}", any(Self::event))
            .with_state(self.clone());
        crate::web::fake::Server::start(routes).await
    }

    fn note(&self, method: &Method, path: &str, headers: &HeaderMap, body: &str) {
        let mut state = self.state();
        state.asked.push((method.to_string(), path.to_owned(), body.to_owned()));
        let given = headers.get("authorization").and_then(|given| given.to_str().ok());
        given.unwrap_or_default().clone_into(&mut state.authorization);
    }

    async fn collection(
        State(dav): State<Self>,
        method: Method,
        headers: HeaderMap,
        body: String,
    ) -> Response {
        dav.note(&method, "/cal/", &headers, &body);
        if method.as_str() != "REPORT" {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        let mut xml = r#"<?xml version="1.0"?><d:multistatus xmlns:d="DAV:" xmlns:cal="urn:ietf:params:xml:ns:caldav">"#.to_owned();
        for (id, (version, ics)) in &dav.state().events {
            let ics = ics.replace('&', "&amp;").replace('<', "&lt;").replace('\r', "&#13;");
            xml.push_str(&format!(
                "<d:response><d:href>/cal/{id}</d:href><d:propstat><d:prop><d:getetag>\
                 \"{version}\"</d:getetag><cal:calendar-data>{ics}</cal:calendar-data></d:prop>\
                 <d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>"
            ));
        }
        (StatusCode::MULTI_STATUS, xml + "</d:multistatus>").into_response()
    }

    async fn event(
        State(dav): State<Self>,
        Path(id): Path<String>,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let body = String::from_utf8_lossy(&body).into_owned();
        dav.note(&method, &id, &headers, &body);
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let now = dav.state().events.get(&id).cloned();
        let tag = now.as_ref().map(|(version, _)| format!("\"{version}\""));
        let is_stale = (header("if-none-match") == Some("*") && now.is_some())
            || header("if-match").is_some_and(|wanted| tag.as_deref() != Some(wanted));
        match (method.as_str(), now, is_stale) {
            ("GET", Some((_, ics)), _) => {
                ([("etag", tag.unwrap_or_default())], ics).into_response()
            }
            ("GET" | "DELETE", None, _) => StatusCode::NOT_FOUND.into_response(),
            ("PUT" | "DELETE", _, true) => StatusCode::PRECONDITION_FAILED.into_response(),
            ("PUT", _, false) => {
                dav.put(&id, &body);
                StatusCode::CREATED.into_response()
            }
            ("DELETE", _, false) => {
                dav.state().events.remove(&id);
                StatusCode::NO_CONTENT.into_response()
            }
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        }
    }
}

/// SMTP server (RFC 5321, RFC 4954), without TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct Post {
    /// Received commands and mails.
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
    /// Whether to close the connection after a mail, without an answer.
    pub(crate) breaks: bool,
}

impl Post {
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Received mails.
    pub(crate) fn mails(&self) -> Vec<String> {
        self.heard().into_iter().filter(|line| line.contains("\r\n\r\n")).collect()
    }

    pub(crate) async fn start(&self) -> anyhow::Result<u16> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let post = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let post = post.clone();
                tokio::spawn(async move { post.talk(stream).await });
            }
        });
        Ok(port)
    }

    async fn talk(&self, stream: tokio::net::TcpStream) -> std::io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        write.write_all(b"220 post.test ESMTP\r\n").await?;
        loop {
            let mut line = String::new();
            if read.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            self.hear(&line);
            let word = line.split_whitespace().next().unwrap_or_default().to_uppercase();
            let answer = match word.as_str() {
                "EHLO" => "250-post.test\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN\r\n",
                "AUTH" if line.contains("AGFubmEAZ2VoZWlt") => "235 welcome\r\n",
                "AUTH" => "535 no\r\n",
                "RCPT" if line.contains("nobody@") => "550 no such user\r\n",
                "DATA" => {
                    write.write_all(b"354 go on\r\n").await?;
                    let mut mail = String::new();
                    while !mail.ends_with("\r\n.\r\n") {
                        if read.read_line(&mut mail).await? == 0 {
                            return Ok(());
                        }
                    }
                    self.hear(&mail);
                    if self.breaks {
                        return Ok(());
                    }
                    "250 taken\r\n"
                }
                "QUIT" => "221 bye\r\n",
                _ => "250 ok\r\n",
            };
            write.write_all(answer.as_bytes()).await?;
        }
    }

    fn hear(&self, line: &str) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }
}
