//! A TCP proxy that breaks on purpose.
//!
//! Put it between a service and a backend. The fault that matters most is the lost answer: the
//! server has committed, stored or sent, and the client will never hear of it
//! ([`Proxy::lose_answer`]).
//!
//! **What can go wrong.** Rules look at what one read returns. A request that is written at once
//! and fits into 64 KiB arrives at once on loopback, so a predicate such as `contains("COMMIT")`
//! sees it whole; one that is streamed may be split anywhere.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::http::LOCALHOST;
use crate::scratch::lock;

const CHUNK: usize = 64 * 1024;

/// A proxy in front of one server; it is gone, with its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    door: watch::Sender<ListenState>,
    is: watch::Receiver<ListenState>,
    /// Bound and never listening: while the door is shut nobody else can get the port.
    _reserved: TcpSocket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenState {
    Open,
    Shut,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    rules: Mutex<Vec<Arc<Rule>>>,
    delay: watch::Sender<Duration>,
    stalled: watch::Sender<Stalled>,
    /// Cancelled and replaced by each cut.
    connections: Mutex<CancellationToken>,
    accepted: AtomicU64,
}

impl Proxy {
    /// Listens on a free loopback port and carries what comes to `upstream`.
    pub async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        Self::start_on(LOCALHOST, upstream).await
    }

    /// Listens on a free port of this address and carries what comes to `upstream`.
    pub async fn start_on(ip: IpAddr, upstream: SocketAddr) -> anyhow::Result<Self> {
        let reserved = socket((ip, 0).into())?;
        let addr = reserved.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            rules: Mutex::default(),
            delay: watch::Sender::new(Duration::ZERO),
            stalled: watch::Sender::default(),
            connections: Mutex::new(CancellationToken::new()),
            accepted: AtomicU64::new(0),
        });
        let (door, wanted) = watch::channel(ListenState::Open);
        let (become_so, is) = watch::channel(ListenState::Shut);
        let proxy = Self { addr, shared: Arc::clone(&shared), door, is, _reserved: reserved };
        tokio::spawn(keep_door(addr, shared, wanted, become_so));
        proxy.wait_for(ListenState::Open).await.context("cannot listen")?;
        Ok(proxy)
    }

    /// A proxy in front of the server that a URL names, such as
    /// `postgres://holdfast@127.0.0.1:25432/test`; see [`Self::through`].
    ///
    /// # Errors
    ///
    /// If the URL has no host and port that can be found, or there is no port for the proxy.
    pub async fn in_front_of(url: &str) -> anyhow::Result<Self> {
        Self::start(Self::server_of(url).await?).await
    }

    /// The address of the server that a URL names.
    ///
    /// # Errors
    ///
    /// If the URL has no host and port that can be found.
    pub async fn server_of(url: &str) -> anyhow::Result<SocketAddr> {
        let (from, to) = authority(url);
        tokio::net::lookup_host(&url[from..to])
            .await
            .with_context(|| format!("cannot find the server of `{url}`"))?
            .next()
            .with_context(|| format!("`{url}` names no server"))
    }

    /// The same URL, but through this proxy.
    #[must_use]
    pub fn through(&self, url: &str) -> String {
        let (from, to) = authority(url);
        format!("{}{}{}", &url[..from], self.addr, &url[to..])
    }

    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Carries what comes from now on to another server, as an address that moves in a failover;
    /// open connections stay where they are. Combine with [`Self::cut`].
    pub fn redirect(&self, upstream: SocketAddr) {
        *lock(&self.shared.upstream) = upstream;
    }

    /// How many connections were taken so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Drops all connections now. New ones are welcome.
    pub fn cut(&self) {
        let mut connections = lock(&self.shared.connections);
        std::mem::take(&mut *connections).cancel();
    }

    /// Refuses new connections, as if the server were down; open ones go on. Combine with
    /// [`Self::cut`] for an outage.
    pub async fn refuse(&self) -> anyhow::Result<()> {
        self.door.send_replace(ListenState::Shut);
        self.wait_for(ListenState::Shut).await
    }

    pub async fn accept(&self) -> anyhow::Result<()> {
        self.door.send_replace(ListenState::Open);
        self.wait_for(ListenState::Open).await
    }

    /// Holds each chunk back for this long, in both directions: a round trip takes twice that.
    pub fn delay(&self, delay: Duration) {
        self.shared.delay.send_replace(delay);
    }

    /// Carries nothing and closes nothing, as a network that loses packets, until
    /// [`Self::resume`].
    pub fn stall(&self) {
        self.shared.stalled.send_replace(Stalled { to_server: true, to_client: true });
    }

    /// As [`Self::stall`], in one direction only: what goes the other way arrives.
    pub fn stall_towards(&self, direction: Direction) {
        self.shared.stalled.send_modify(|stalled| match direction {
            Direction::ToServer => stalled.to_server = true,
            Direction::ToClient => stalled.to_client = true,
        });
    }

    /// Carries on, with what was held back first.
    pub fn resume(&self) {
        self.shared.stalled.send_replace(Stalled::default());
    }

    /// Loses the answer to a request: once the client has sent a chunk for which `request` is
    /// true, the chunk goes upstream, the upstream's answer is awaited and dropped, and the
    /// connection with it.
    pub fn lose_answer<F>(&self, when: When, request: F) -> LostAnswers
    where
        F: Fn(&[u8]) -> bool + Send + Sync + 'static,
    {
        self.lose_answer_after(when, request, |_| true, 0)
    }

    /// As [`Self::lose_answer`], but only a chunk for which `answer` is true counts as the answer
    /// (others pass), and its first `let_through` bytes reach the client.
    pub fn lose_answer_after<F, G>(
        &self,
        when: When,
        request: F,
        answer: G,
        let_through: usize,
    ) -> LostAnswers
    where
        F: Fn(&[u8]) -> bool + Send + Sync + 'static,
        G: Fn(&[u8]) -> bool + Send + Sync + 'static,
    {
        let rule = Arc::new(Rule {
            request: Box::new(request),
            answer: Box::new(answer),
            let_through,
            when: Mutex::new(when),
            fired: AtomicU64::new(0),
            armed: AtomicBool::new(true),
        });
        lock(&self.shared.rules).push(Arc::clone(&rule));
        LostAnswers(rule)
    }

    async fn wait_for(&self, door: ListenState) -> anyhow::Result<()> {
        let mut is = self.is.clone();
        is.wait_for(|now| *now == door).await.context("the proxy's task is gone")?;
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Direction in which a connection carries data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Directions in which nothing is carried.
#[derive(Debug, Clone, Copy, Default)]
struct Stalled {
    to_server: bool,
    to_client: bool,
}

impl Stalled {
    const fn holds(self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }
}

/// How often a rule fires.
#[derive(Debug, PartialEq)]
pub enum When {
    /// The first time that its request is seen.
    Once,
    /// The first so many times.
    Times(u64),
    Always,
    /// With this probability, between 0 and 1, each time, as drawn from these numbers.
    Chance(f64, Box<StdRng>),
}

impl When {
    fn comes(&mut self) -> bool {
        match self {
            Self::Once => {
                *self = Self::Times(0);
                true
            }
            Self::Times(0) => false,
            Self::Times(left) => {
                *left -= 1;
                true
            }
            Self::Always => true,
            Self::Chance(chance, draws) => draws.random::<f64>() < *chance,
        }
    }
}

/// A rule about lost answers, as its maker holds it. Dropping it leaves the rule in force.
#[derive(Debug, Clone)]
pub struct LostAnswers(Arc<Rule>);

impl LostAnswers {
    /// How many answers were lost.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.0.fired.load(Ordering::Acquire)
    }

    pub fn stop(&self) {
        self.0.armed.store(false, Ordering::Release);
    }
}

/// True for a chunk that holds these bytes.
pub fn contains(needle: impl Into<Vec<u8>>) -> impl Fn(&[u8]) -> bool + Send + Sync + 'static {
    let needle = needle.into();
    move |chunk| chunk.windows(needle.len().max(1)).any(|window| window == needle)
}

/// Where the `host:port` of a URL begins and ends.
fn authority(url: &str) -> (usize, usize) {
    let from = url.find("://").map_or(0, |at| at + 3);
    let to = url[from..].find(['/', '?']).map_or(url.len(), |at| from + at);
    (url[from..to].rfind('@').map_or(from, |at| from + at + 1), to)
}

type Predicate = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

struct Rule {
    request: Predicate,
    answer: Predicate,
    let_through: usize,
    when: Mutex<When>,
    fired: AtomicU64,
    armed: AtomicBool,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("when", &self.when).field("fired", &self.fired).finish()
    }
}

impl Rule {
    fn applies(&self, chunk: &[u8]) -> bool {
        self.armed.load(Ordering::Acquire) && (self.request)(chunk) && lock(&self.when).comes()
    }
}

/// A socket on this address that others of ours may bind too; only one of them listens.
fn socket(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// Listens while the door should be open, until the proxy is dropped.
async fn keep_door(
    addr: SocketAddr,
    shared: Arc<Shared>,
    mut wanted: watch::Receiver<ListenState>,
    is: watch::Sender<ListenState>,
) {
    loop {
        let Ok(listener) = socket(addr).and_then(|socket| socket.listen(1024)) else {
            return; // whoever waits for the door sees our end
        };
        is.send_replace(ListenState::Open);
        tokio::select! {
            () = take_connections(&listener, &shared) => {}
            gone = wanted.wait_for(|door| *door == ListenState::Shut) => if gone.is_err() { return },
        }
        drop(listener);
        is.send_replace(ListenState::Shut);
        if wanted.wait_for(|door| *door == ListenState::Open).await.is_err() {
            return;
        }
    }
}

async fn take_connections(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        // An error here is a client that went before we looked.
        let Ok((client, _)) = listener.accept().await else { continue };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        let cut = lock(&shared.connections).clone();
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                carried = carry(client, &shared) => drop(carried),
            }
        });
    }
}

/// Carries one connection until both sides have ended, or an answer is lost.
async fn carry(client: TcpStream, shared: &Shared) -> io::Result<()> {
    let server = *lock(&shared.upstream);
    let upstream = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_upstream, to_upstream) = upstream.into_split();
    let losing = Mutex::new(None);
    // An error on either side, such as a lost answer, ends both.
    tokio::try_join!(
        carry_requests(from_client, to_upstream, shared, &losing),
        carry_answers(from_upstream, to_client, shared, &losing),
    )?;
    Ok(())
}

async fn carry_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    losing: &Mutex<Option<Arc<Rule>>>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        let chunk = &buffer[..n];
        hold_back(shared, Direction::ToServer).await;
        {
            let rules = lock(&shared.rules);
            if let Some(rule) = rules.iter().find(|rule| rule.applies(chunk)) {
                // Set before the chunk goes, so that its answer cannot slip through.
                *lock(losing) = Some(Arc::clone(rule));
            }
        }
        to.write_all(chunk).await?;
    }
}

async fn carry_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    losing: &Mutex<Option<Arc<Rule>>>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        let chunk = &buffer[..n];
        hold_back(shared, Direction::ToClient).await;
        let rule = lock(losing).clone().filter(|rule| (rule.answer)(chunk));
        if let Some(rule) = rule {
            to.write_all(&chunk[..rule.let_through.min(n)]).await?;
            rule.fired.fetch_add(1, Ordering::AcqRel);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        to.write_all(chunk).await?;
    }
}

async fn hold_back(shared: &Shared, direction: Direction) {
    let delay = *shared.delay.borrow();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if shared.stalled.borrow().holds(direction) {
        // The sender lives as long as `shared`.
        drop(shared.stalled.subscribe().wait_for(|stalled| !stalled.holds(direction)).await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sqlx::{Connection as _, PgConnection};
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;
    use crate::postgres::Database;

    /// Answers each line with `ok <line>`, and remembers the lines.
    async fn server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let (read, mut write) = stream.into_split();
                    let mut lines = BufReader::new(read).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        lock(&log).push(line.clone());
                        if write.write_all(format!("ok {line}\n").as_bytes()).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        (addr, seen)
    }

    struct Client(BufReader<TcpStream>);

    impl Client {
        async fn connect(proxy: &Proxy) -> io::Result<Self> {
            Ok(Self(BufReader::new(TcpStream::connect(proxy.addr()).await?)))
        }

        /// The answer; `None` if the connection ended instead.
        async fn ask(&mut self, line: &str) -> Option<String> {
            self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await.ok()?;
            let mut answer = String::new();
            let n = self.0.read_line(&mut answer).await.unwrap_or(0);
            (n > 0).then(|| answer.trim_end().to_owned())
        }
    }

    #[tokio::test]
    async fn what_comes_is_carried_both_ways() {
        let (upstream, _) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let mut client = Client::connect(&proxy).await.unwrap();

        assert_eq!(client.ask("one").await.as_deref(), Some("ok one"));
        assert_eq!(client.ask("two").await.as_deref(), Some("ok two"));
        assert_eq!(proxy.accepted(), 1);
    }

    #[tokio::test]
    async fn the_answer_is_lost_after_the_server_has_done_its_work_and_once_only() {
        let (upstream, seen) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let lost = proxy.lose_answer(When::Once, contains("COMMIT"));

        let mut first = Client::connect(&proxy).await.unwrap();
        assert_eq!(first.ask("BEGIN").await.as_deref(), Some("ok BEGIN"));
        assert_eq!(first.ask("COMMIT").await, None);
        let mut second = Client::connect(&proxy).await.unwrap();
        assert_eq!(second.ask("COMMIT").await.as_deref(), Some("ok COMMIT"));

        assert_eq!(*lock(&seen), ["BEGIN", "COMMIT", "COMMIT"]);
        assert_eq!(lost.fired(), 1);
    }

    #[tokio::test]
    async fn an_answer_can_be_told_from_other_traffic_and_be_cut_in_the_middle() {
        let (upstream, _) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let lost = proxy.lose_answer_after(When::Times(2), contains("pub"), contains("ok ack"), 4);
        let mut client = Client::connect(&proxy).await.unwrap();

        assert_eq!(client.ask("pub").await.as_deref(), Some("ok pub"));
        assert_eq!(client.ask("ack me").await.as_deref(), Some("ok a"));
        assert_eq!(client.ask("more").await, None);
        assert_eq!(lost.fired(), 1);
    }

    #[tokio::test]
    async fn a_commit_whose_answer_is_lost_is_an_error_to_its_client_and_done() {
        let database = Database::create().await.unwrap();
        let mut admin = PgConnection::connect(&database.admin_url()).await.unwrap();
        sqlx::raw_sql("create table kept (id int)").execute(&mut admin).await.unwrap();
        let proxy = Proxy::in_front_of(&database.admin_url()).await.unwrap();
        let lost = proxy.lose_answer(When::Once, contains("COMMIT"));

        let through = proxy.through(&database.admin_url());
        let mut client = PgConnection::connect(&through).await.unwrap();
        let mut transaction = client.begin().await.unwrap();
        sqlx::query("insert into kept values (7)").execute(&mut *transaction).await.unwrap();
        assert!(transaction.commit().await.is_err());

        let ids: Vec<i32> =
            sqlx::query_scalar("select id from kept").fetch_all(&mut admin).await.unwrap();
        assert_eq!(ids, [7]);
        assert_eq!(lost.fired(), 1);
    }

    #[test]
    fn the_server_in_a_url_is_found() {
        for url in ["redis://h:1", "postgres://u:p@h:1/d?x=y", "nats://u@h:1/"] {
            let (from, to) = authority(url);
            assert_eq!(&url[from..to], "h:1");
        }
    }

    #[tokio::test]
    async fn a_stopped_rule_loses_nothing() {
        let (upstream, _) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let lost = proxy.lose_answer(When::Always, |_| true);
        lost.stop();

        let mut client = Client::connect(&proxy).await.unwrap();

        assert_eq!(client.ask("one").await.as_deref(), Some("ok one"));
        assert_eq!(lost.fired(), 0);
    }

    #[tokio::test]
    async fn a_cut_ends_open_connections_and_new_ones_work() {
        let (upstream, _) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let mut client = Client::connect(&proxy).await.unwrap();
        client.ask("one").await.unwrap();

        proxy.cut();

        assert_eq!(client.ask("two").await, None);
        let mut again = Client::connect(&proxy).await.unwrap();
        assert_eq!(again.ask("three").await.as_deref(), Some("ok three"));
    }

    #[tokio::test]
    async fn a_refusing_proxy_refuses_to_connect_until_it_accepts_again() {
        let (upstream, _) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let mut open = Client::connect(&proxy).await.unwrap();
        open.ask("one").await.unwrap();

        for _ in 0..3 {
            proxy.refuse().await.unwrap();
            let refused = TcpStream::connect(proxy.addr()).await;
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(open.ask("two").await.as_deref(), Some("ok two"));

            proxy.accept().await.unwrap();
            let mut client = Client::connect(&proxy).await.unwrap();
            assert_eq!(client.ask("three").await.as_deref(), Some("ok three"));
        }
    }

    #[tokio::test]
    async fn a_delay_holds_back_both_ways() {
        let (upstream, _) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        proxy.delay(Duration::from_millis(50));
        let mut client = Client::connect(&proxy).await.unwrap();

        let begun = Instant::now();
        client.ask("one").await.unwrap();

        assert!(begun.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn a_stalled_proxy_carries_nothing_and_then_what_it_held() {
        let (upstream, seen) = server().await;
        let proxy = Proxy::start(upstream).await.unwrap();
        let mut client = Client::connect(&proxy).await.unwrap();
        client.ask("one").await.unwrap();

        proxy.stall();
        let patience = Duration::from_millis(100);
        assert!(tokio::time::timeout(patience, client.ask("two")).await.is_err());
        assert_eq!(*lock(&seen), ["one"]);
        proxy.resume();

        let mut answer = String::new();
        client.0.read_line(&mut answer).await.unwrap();
        assert_eq!(answer, "ok two\n");
    }

    #[tokio::test]
    async fn a_proxy_that_stalls_one_way_carries_the_other() {
        for (direction, arrived) in [(Direction::ToServer, 1), (Direction::ToClient, 2)] {
            let (upstream, seen) = server().await;
            let proxy = Proxy::start(upstream).await.unwrap();
            let mut client = Client::connect(&proxy).await.unwrap();
            client.ask("one").await.unwrap();

            proxy.stall_towards(direction);
            let patience = Duration::from_millis(100);
            assert!(tokio::time::timeout(patience, client.ask("two")).await.is_err());
            let end = Instant::now() + Duration::from_secs(30);
            while lock(&seen).len() < arrived && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(lock(&seen).len(), arrived, "{direction:?}");
            proxy.resume();

            let mut answer = String::new();
            client.0.read_line(&mut answer).await.unwrap();
            assert_eq!(answer, "ok two\n");
        }
    }
}
