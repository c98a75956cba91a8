//! A connection after it has signed in: reads lines, answers PING, sends batches of lines.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Irc, MAX_WAITING_BATCHES, flood::FloodLimit, judge::judge, wire::Line};
use crate::{
    Outcome,
    channel::ChannelAccount,
    connection::Disconnected,
    guard::{Encryption, Stream},
    inbound::{self, EventQueue, RetryMode, Verdict},
};

/// Maximum length of a line, in bytes: 512, and 8191 for tags (<https://ircv3.net/specs/extensions/message-tags>).
const MAX_LINE_BYTES: usize = 8191 + 512;

/// Silence after which the server is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(90);

/// Silence after which the connection counts as broken.
const LOST_AFTER: Duration = Duration::from_secs(150);

/// Time in which the server must confirm a batch.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(20);

/// Time in which a line must be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Delay before a channel is joined again from which the account was removed.
const REJOIN_DELAY: Duration = Duration::from_secs(30);

/// Number of messages that wait for the gateway. Those that come meanwhile are lost: IRC keeps none.
const MAX_WAITING_MESSAGES: usize = 1000;

/// Lines for one target, which are confirmed together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) target: String,
    pub(super) lines: Vec<String>,
    pub(super) done: oneshot::Sender<Outcome>,
}

/// Connection, line by line.
pub(super) struct Wire {
    read: ReadHalf<Box<dyn Stream>>,
    write: WriteHalf<Box<dyn Stream>>,
    buffer: Vec<u8>,
}

/// Batch whose lines were written, and that waits for its PONG.
struct PendingBatch {
    token: String,
    target: String,
    done: oneshot::Sender<Outcome>,
    until: Instant,
}

impl Wire {
    fn new(stream: Box<dyn Stream>) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self { read, write, buffer: Vec::new() }
    }

    /// Reads a line. May be cancelled: nothing is lost.
    pub(super) async fn read(&mut self) -> Result<Line, Disconnected> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                match Line::parse(&String::from_utf8_lossy(&line)) {
                    Some(line) => return Ok(line),
                    None => continue,
                }
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(Disconnected::lost("the server sent a line that is too long"));
            }
            match self.read.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Err(Disconnected::lost("the connection ended")),
                Ok(_) => {}
            }
        }
    }

    pub(super) async fn write(&mut self, line: &str) -> Result<(), Disconnected> {
        let line = format!("{line}\r\n");
        let written = async {
            self.write.write_all(line.as_bytes()).await?;
            self.write.flush().await
        };
        match timeout(WRITE_TIMEOUT, written).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Disconnected::lost("the connection broke")),
        }
    }
}

impl Irc {
    /// Connects, signs in, and serves until the connection ends.
    pub(super) async fn hold_connection(self: Arc<Self>, stop: CancellationToken) -> Disconnected {
        let settings = &self.settings;
        let encryption = if settings.tls { Encryption::Tls("") } else { Encryption::None };
        let connected = self.clients.connect(&settings.server, settings.port(), encryption).await;
        let mut wire = match connected {
            Ok(stream) => Wire::new(stream),
            Err(reason) => return Disconnected::lost(reason),
        };
        let nick = match self.sign_in(&mut wire).await {
            Ok(nick) => nick,
            Err(ended) => return ended,
        };
        info!(account.id = %self.account.id, "signed in");
        self.account.report_working(format!("signed in to {} as {nick}", settings.server));
        let (to_send, batches) = mpsc::channel(MAX_WAITING_BATCHES);
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner) = Some(to_send);
        let _reset = ResetOnDrop(&self);
        let mut session = Session {
            irc: Arc::clone(&self),
            nick,
            inbound: self.start_inbound(),
            unconfirmed: VecDeque::new(),
            flood: FloodLimit::new(),
            next_token: 0,
            rejoins: VecDeque::new(),
        };
        match session.serve(&mut wire, batches, &stop).await {
            Ok(never) => never,
            Err(ended) => ended,
        }
    }

    /// Starts the task that hands messages to the gateway, in order: the connection must answer PING
    /// while the gateway is unavailable.
    fn start_inbound(self: &Arc<Self>) -> EventQueue<Verdict> {
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        EventQueue::start(MAX_WAITING_MESSAGES, move |verdict| {
            let account = Arc::clone(&account);
            async move {
                inbound::handle(&account, verdict, RetryMode::UntilDecided).await;
            }
        })
    }
}

/// Removes the way to the connection when it has ended.
struct ResetOnDrop<'a>(&'a Irc);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        *self.0.connected.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

struct Session {
    irc: Arc<Irc>,
    nick: String,
    inbound: EventQueue<Verdict>,
    unconfirmed: VecDeque<PendingBatch>,
    flood: FloodLimit,
    next_token: u64,
    /// Channels to join again, and when.
    rejoins: VecDeque<(Instant, String)>,
}

impl Session {
    async fn serve(
        &mut self,
        wire: &mut Wire,
        mut batches: mpsc::Receiver<Batch>,
        stop: &CancellationToken,
    ) -> Result<Disconnected, Disconnected> {
        let channels = self.irc.settings.channels.clone();
        for channel in &channels {
            wire.write(&format!("JOIN {channel}")).await?;
        }
        let mut heard_at = Instant::now();
        let mut is_asked = false;
        loop {
            let quiet_until = heard_at + if is_asked { LOST_AFTER } else { PING_AFTER };
            let rejoin_at = self.rejoins.front().map(|(at, _)| *at);
            let due = self.unconfirmed.front().map_or(quiet_until, |first| first.until);
            tokio::select! {
                () = stop.cancelled() => {
                    wire.write("QUIT :restarting").await?;
                    return Ok(Disconnected::Stopped);
                }
                line = wire.read() => {
                    (heard_at, is_asked) = (Instant::now(), false);
                    self.handle(wire, line?).await?;
                }
                Some(batch) = batches.recv() => self.send(wire, batch).await?,
                () = sleep_until(rejoin_at.unwrap_or(quiet_until)), if rejoin_at.is_some() => {
                    if let Some((_, entry)) = self.rejoins.pop_front() {
                        wire.write(&format!("JOIN {entry}")).await?;
                    }
                }
                () = sleep_until(due.min(quiet_until)) => {
                    if due <= Instant::now() && due < quiet_until {
                        return Err(Disconnected::lost("the server does not confirm what it is sent"));
                    }
                    if is_asked {
                        return Err(Disconnected::lost("the server is silent"));
                    }
                    is_asked = true;
                    wire.write("PING :alive").await?;
                }
            }
        }
    }

    /// Writes a batch, and a PING whose PONG confirms it. Meanwhile lines are read, so that a server
    /// that waits for a PONG of ours gets it.
    async fn send(&mut self, wire: &mut Wire, batch: Batch) -> Result<(), Disconnected> {
        self.next_token += 1;
        let token = format!("batch-{}", self.next_token);
        let Batch { target, lines, done } = batch;
        // From here on the lines may have arrived: if this ends early, dropping `done` says so.
        for line in lines {
            self.flood.wait().await;
            wire.write(&format!("PRIVMSG {target} :{line}")).await?;
        }
        wire.write(&format!("PING :{token}")).await?;
        let until = Instant::now() + CONFIRM_TIMEOUT;
        self.unconfirmed.push_back(PendingBatch { token, target, done, until });
        Ok(())
    }

    async fn handle(&mut self, wire: &mut Wire, line: Line) -> Result<(), Disconnected> {
        match line.command.as_str() {
            "PING" => wire.write(&format!("PONG :{}", line.text())).await?,
            "PONG" => {
                let confirms = |first: &PendingBatch| first.token == line.text();
                if self.unconfirmed.front().is_some_and(confirms)
                    && let Some(confirmed) = self.unconfirmed.pop_front()
                {
                    let _ = confirmed.done.send(Outcome::Sent { platform_id: String::new() });
                }
            }
            "PRIVMSG" => {
                let verdict = judge(&line, &self.irc.settings, &self.nick);
                if !self.inbound.push(verdict) {
                    warn!(account.id = %self.irc.account.id, "messages are lost: too many wait for the gateway");
                }
            }
            // The target of a message does not exist, or does not take it.
            "401" | "403" | "404" | "407" | "411" | "412" | "413" | "442" | "477" | "531" => {
                self.refuse(line.param(1), line.text());
            }
            "471" | "473" | "474" | "475" | "476" | "405" | "489" => {
                let (channel, why) = (line.param(1), line.text());
                self.irc.account.report_failing(format!("cannot join {channel}: {why}"));
            }
            "KICK" if line.param(1).eq_ignore_ascii_case(&self.nick) => {
                let channel = line.param(0).to_owned();
                self.irc.account.report_failing(format!("was removed from {channel}"));
                self.rejoin_later(&channel);
            }
            "JOIN" if line.source.eq_ignore_ascii_case(&self.nick) => self.report_working(),
            "NICK" if line.source.eq_ignore_ascii_case(&self.nick) => {
                line.text().clone_into(&mut self.nick);
            }
            "ERROR" => {
                let why = line.text().chars().take(200).collect::<String>();
                return Err(Disconnected::lost(format!("the server closed the connection: {why}")));
            }
            _ => {}
        }
        Ok(())
    }

    fn report_working(&self) {
        let server = &self.irc.settings.server;
        self.irc.account.report_working(format!("signed in to {server} as {}", self.nick));
    }

    /// Settles the oldest batch for this target as refused.
    fn refuse(&mut self, target: &str, why: &str) {
        let is_meant = |batch: &PendingBatch| batch.target.eq_ignore_ascii_case(target);
        if let Some(at) = self.unconfirmed.iter().position(is_meant)
            && let Some(refused) = self.unconfirmed.remove(at)
        {
            let why: String = why.chars().take(200).collect();
            let _ = refused.done.send(Outcome::refused(format!("irc refused: {why}")));
        }
    }

    fn rejoin_later(&mut self, channel: &str) {
        let entries = &self.irc.settings.channels;
        let is_it = |entry: &&String| {
            entry.split(' ').next().is_some_and(|name| name.eq_ignore_ascii_case(channel))
        };
        if let Some(entry) = entries.iter().find(is_it) {
            self.rejoins.push_back((Instant::now() + REJOIN_DELAY, entry.clone()));
        }
    }
}
