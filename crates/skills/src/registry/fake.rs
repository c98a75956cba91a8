//! Registries for tests: one that says what it is told to, and a ClawHub on this machine.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures::future::BoxFuture;

use super::{Registry, SkillHit, SkillVersionMeta, Verdict};
use crate::{Download, Error, SkillName};

/// A registry that says what it is told to.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) version: Option<&'static str>,
    pub(crate) archive: Vec<u8>,
    /// What a search finds, or why it fails.
    pub(crate) found: Result<Vec<(&'static str, f64)>, &'static str>,
    /// How long a search takes.
    pub(crate) takes: Duration,
    pub(crate) searches: AtomicUsize,
    pub(crate) downloads: AtomicUsize,
    /// How many of them search now, and how many did at most.
    pub(crate) busy: Arc<Mutex<(usize, usize)>>,
}

impl Fake {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            verdict: Verdict::Clean,
            version: Some("1.2.3"),
            archive: Vec::new(),
            found: Ok(Vec::new()),
            takes: Duration::ZERO,
            searches: AtomicUsize::new(0),
            downloads: AtomicUsize::new(0),
            busy: Arc::default(),
        }
    }

    pub(crate) fn hit(&self, slug: &str, score: f64) -> SkillHit {
        SkillHit {
            score,
            slug: slug.parse().unwrap(),
            title: slug.to_owned(),
            summary: "s".to_owned(),
            version: None,
            registry: self.name.to_owned(),
        }
    }
}

impl Registry for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn search<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, Result<Vec<SkillHit>, Error>> {
        self.searches.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            {
                let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
                busy.0 += 1;
                busy.1 = busy.1.max(busy.0);
            }
            tokio::time::sleep(self.takes).await;
            self.busy.lock().unwrap_or_else(PoisonError::into_inner).0 -= 1;
            match &self.found {
                Ok(found) => Ok(found.iter().map(|(slug, score)| self.hit(slug, *score)).collect()),
                Err(why) => Err(Error::Unavailable {
                    registry: self.name.to_owned(),
                    why: (*why).to_owned(),
                }),
            }
        })
    }

    fn meta<'a>(
        &'a self,
        _: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SkillVersionMeta, Error>> {
        let version = version.or(self.version).map(str::to_owned);
        Box::pin(async move { Ok(SkillVersionMeta { version, verdict: self.verdict.clone() }) })
    }

    fn download<'a>(
        &'a self,
        _: &'a SkillName,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>> {
        self.downloads.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(Download::Zip(self.archive.clone())) })
    }
}

/// An answer to a request, by its path with its query.
type Answer = dyn Fn(&str) -> Response + Send + Sync;

/// A request's path with its query, and its token.
type Asked = (String, Option<String>);

/// A server on this machine, and the requests that it was sent.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers each request as it is told to.
    pub(crate) async fn start(
        answer: impl Fn(&str) -> Response + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer): (_, Arc<Answer>) = (Arc::clone(&asked), Arc::new(answer));
        let routes = Router::new().fallback(move |request: Request| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let token = request.headers().get("authorization");
            let token = token.and_then(|token| token.to_str().ok()).map(str::to_owned);
            kept.lock().unwrap_or_else(PoisonError::into_inner).push((path.clone(), token));
            let answer = Arc::clone(&answer);
            async move { answer(&path) }
        });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, asked })
    }

    /// The paths with their queries, and the tokens, of all requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An answer of JSON.
pub(crate) fn json(value: &serde_json::Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

/// An answer that says no.
pub(crate) fn status(code: u16) -> Response {
    StatusCode::from_u16(code).unwrap_or_default().into_response()
}
