//! Fake name resolution, and a server that counts requests.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::Router;

use holdfast_egress::{Lookup, LookupFuture};

/// Public address, to which nothing is ever sent.
pub(crate) const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));

/// Answers for each name, used in order; the last one repeats.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>);

impl Answers {
    /// Sets the answers for a name.
    pub(crate) fn of<const N: usize>(name: &str, answers: [Vec<IpAddr>; N]) -> Self {
        Self::default().and(name, answers)
    }

    /// Adds the answers for a name.
    pub(crate) fn and<const N: usize>(self, name: &str, answers: [Vec<IpAddr>; N]) -> Self {
        let reversed = answers.into_iter().rev().collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), reversed);
        self
    }
}

impl Lookup for Answers {
    fn lookup(&self, name: String) -> LookupFuture {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match answers.get_mut(&name) {
            Some(answers) if answers.len() > 1 => Ok(answers.pop().unwrap_or_default()),
            Some(answers) => Ok(answers.last().cloned().unwrap_or_default()),
            None => Err(io::Error::other("no such name")),
        };
        Box::pin(async { found })
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    hits: Arc<AtomicUsize>,
}

impl Server {
    /// Serves these routes, and counts all requests.
    pub(crate) async fn start(routes: Router) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let hits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&hits);
        let routes =
            routes.layer(axum::middleware::map_request(move |request: axum::extract::Request| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move { request }
            }));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { address, hits })
    }

    /// Base URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of requests.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}
