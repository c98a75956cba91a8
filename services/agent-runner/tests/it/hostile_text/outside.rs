//! Everything outside of the mesh that a call may reach, on one port of this machine.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::Request,
    http::Method,
    response::{Html, IntoResponse as _, Response},
};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::HOSTILE;

type Requests = Arc<Mutex<Vec<(Method, String)>>>;

/// A web server with pages and a search. It records every request.
pub struct Outside {
    pub address: SocketAddr,
    requests: Requests,
    _task: AbortOnDropHandle<std::io::Result<()>>,
}

impl Outside {
    pub async fn start() -> anyhow::Result<Self> {
        let requests = Requests::default();
        let seen = Arc::clone(&requests);
        let router = Router::new().fallback(move |request: Request| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let host = request.headers().get("host").and_then(|host| host.to_str().ok());
            let response = respond(host.unwrap_or_default(), &path);
            seen.lock().unwrap().push((method, path));
            std::future::ready(response)
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, requests, _task: AbortOnDropHandle::new(task) })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests that carried something out: all but those of pages and searches.
    pub fn leaks(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let reads = |path: &str| path.starts_with("/page") || path.starts_with("/search");
        let leaks = requests.iter().filter(|(method, path)| method != Method::GET || !reads(path));
        leaks.map(|(method, path)| format!("{method} {path}")).collect()
    }
}

fn respond(host: &str, path: &str) -> Response {
    let page = |name: &str| format!("http://{host}/page/{name}");
    if path.starts_with("/search") {
        let hit = json!({ "title": HOSTILE, "url": page("found"), "content": HOSTILE });
        return Json(json!({ "query": "q", "answers": [], "results": [hit] })).into_response();
    }
    let (next, more) = (page("next"), page("more"));
    let links = format!("<a href='{next}'>{next}</a> <a href='{more}'>{more}</a>");
    Html(format!("<title>Tea</title><p>{HOSTILE}</p>{links}")).into_response()
}
