//! The server over HTTP, with streams of watches.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{self, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    Shared, exec,
    request::{Refusal, Request},
    server::{Answer, Watch, metadata_of},
};

/// Time without a change after which a watch sends a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of a request's body, in bytes.
const MAX_BODY: usize = 3 << 20;

pub fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(handle).with_state(shared)
}

async fn handle(State(shared): State<Arc<Shared>>, mut incoming: extract::Request) -> Response {
    if !*shared.is_up.borrow() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(incoming.uri()) else {
        return refused(&Refusal::bad_request("the query is not valid"));
    };
    let body = std::mem::take(incoming.body_mut());
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return refused(&Refusal::bad_request("the body is too large"));
    };
    let body: Result<Value, _> =
        if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
    let body = match body {
        Ok(body) => body,
        Err(error) => return refused(&Refusal::bad_request(error.to_string())),
    };
    let request = {
        let text = |name| exec::header_text(incoming.headers(), name);
        Request {
            method: incoming.method().as_str().to_owned(),
            path: incoming.uri().path().to_owned(),
            query: pairs.iter().cloned().collect(),
            accept: text(header::ACCEPT),
            content_type: text(header::CONTENT_TYPE),
            token: text(header::AUTHORIZATION).trim_start_matches("Bearer ").to_owned(),
            body,
        }
    };
    if request.path == "/version" {
        return axum::Json(version()).into_response();
    }
    if let Some(listed) = shared.lock().resources(&request.path) {
        return axum::Json(listed).into_response();
    }
    let delay = shared.lock().delay(&request);
    tokio::time::sleep(delay).await;
    match shared.answer(&request) {
        Ok(Answer::Object(code, object)) => {
            let code = StatusCode::from_u16(code).unwrap_or_default();
            (code, axum::Json(object)).into_response()
        }
        Ok(Answer::Watch(watch)) => stream_of(shared, watch),
        Ok(Answer::Exec(target)) => exec::upgrade(shared, &target, &pairs, &mut incoming)
            .unwrap_or_else(|refusal| refused(&refusal)),
        Err(refusal) => refused(&refusal),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn refused(refusal: &Refusal) -> Response {
    let code = StatusCode::from_u16(refusal.code).unwrap_or_default();
    (code, axum::Json(refusal.status())).into_response()
}

/// A watch in progress.
struct Progress {
    shared: Arc<Shared>,
    watch: Watch,
    versions: watch::Receiver<u64>,
    ends: Instant,
    is_over: bool,
}

fn stream_of(shared: Arc<Shared>, watch: Watch) -> Response {
    let progress = Progress {
        versions: shared.versions.subscribe(),
        ends: Instant::now() + Duration::from_secs(watch.timeout_seconds),
        shared,
        watch,
        is_over: false,
    };
    let lines = stream::unfold(progress, |mut progress| async move {
        let lines = progress.next_lines().await?;
        Some((Ok::<_, Infallible>(lines), progress))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

impl Progress {
    /// The next events, one on each line; `None` at the end of the watch.
    async fn next_lines(&mut self) -> Option<String> {
        while !self.is_over && Instant::now() < self.ends {
            self.versions.borrow_and_update();
            let events = self.events();
            if !events.is_empty() {
                return Some(events.iter().map(|event| format!("{event}\n")).collect());
            }
            let wait = BOOKMARK_INTERVAL.min(self.ends - Instant::now());
            let changed = tokio::time::timeout(wait, self.versions.changed()).await;
            if changed.is_err() && self.watch.has_bookmarks {
                return Some(format!("{}\n", self.bookmark()));
            }
        }
        None
    }

    fn events(&mut self) -> Vec<Value> {
        let server = self.shared.lock();
        let Some(changes) = server.store.changes_after(self.watch.after) else {
            self.is_over = true;
            return vec![json!({"type": "ERROR", "object": Refusal::gone().status()})];
        };
        let watch = &self.watch;
        let is_watched =
            |namespace: &str| watch.namespace.as_deref().is_none_or(|watched| watched == namespace);
        let events = changes
            .iter()
            .filter(|change| {
                change.key.resource == watch.resource && is_watched(&change.key.namespace)
            })
            .map(|change| {
                let object = match watch.is_metadata {
                    true => metadata_of(&change.object),
                    false => change.object.clone(),
                };
                json!({"type": change.kind, "object": object})
            })
            .collect();
        self.watch.after = server.store.version();
        events
    }

    fn bookmark(&self) -> Value {
        let (api_version, kind) = match self.watch.is_metadata {
            true => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            false => (&*self.watch.api_version, &*self.watch.kind),
        };
        json!({"type": "BOOKMARK", "object": {
            "apiVersion": api_version, "kind": kind,
            "metadata": {"resourceVersion": self.watch.after.to_string(), "creationTimestamp": null},
        }})
    }
}
