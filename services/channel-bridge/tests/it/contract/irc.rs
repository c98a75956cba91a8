//! A small IRC server, by <https://modern.ircdocs.horse/>.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::mpsc,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Address, Failure, File, Got, Lack, Platform, Where, Written};
use crate::world::{World, eventually};

const PASSWORD: &str = "irc-password-0123456789";

pub struct IrcPlatform {
    state: Arc<State>,
    port: u16,
    _stop: DropGuard,
}

#[derive(Default)]
struct State {
    /// Clients that have joined a channel: ways to write to them.
    joined: Mutex<Vec<mpsc::UnboundedSender<String>>>,
    cuts: Mutex<CancellationToken>,
    connections: Mutex<(usize, usize)>,
    got: Mutex<Vec<Got>>,
    failure: Mutex<Option<Failure>>,
}

impl Platform for IrcPlatform {
    const CHANNEL: &'static str = "irc";

    async fn start(_: &mut World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
        let (serving, stopped) = (Arc::clone(&state), stop.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    Ok((stream, _)) = listener.accept() => {
                        tokio::spawn(serve(Arc::clone(&serving), stream));
                    }
                }
            }
        });
        Self { state, port, _stop: stop.drop_guard() }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[
            Lack::MessageIds,
            Lack::Files,
            Lack::InboundFiles,
            Lack::Typing,
            Lack::Reactions,
            Lack::Quotes,
            Lack::Threads,
            Lack::Buttons,
            Lack::Edits,
            Lack::RateLimits,
        ]
    }

    fn account(&self) -> (Value, Value) {
        let settings = json!({
            "server": "127.0.0.1", "port": self.port, "tls": false, "nick": "bot",
            "channels": ["#team"], "identify_by": "nick",
        });
        (settings, json!({"server_password": PASSWORD}))
    }

    fn wrong_secrets(&self) -> Value {
        json!({"server_password": "WRONG"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("anna"), json!("@Anna"), json!("anna|x"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        PASSWORD
    }

    async fn is_heard(&self, _: &World) {
        eventually("the client has joined", async || !self.state.joined.lock().unwrap().is_empty())
            .await;
    }

    async fn write(&self, _: &World, _: &Address, written: Written) {
        let nick = if written.is_allowed { "Anna" } else { "eve" };
        let (target, text) = match written.place {
            Where::Direct => ("bot", written.text),
            Where::Group => ("#team", written.text),
            Where::Mention => ("#team", format!("bot: {}", written.text)),
        };
        self.state.tell(&format!(":{nick}!u@host PRIVMSG {target} :{text}"));
    }

    async fn write_file(&self, _: &World, _: &Address, _: File) {}

    async fn press(&self, _: &World, _: &Address, _: &str) {}

    fn got(&self, _: &World) -> Vec<Got> {
        self.state.got.lock().unwrap().clone()
    }

    fn reactions(&self, _: &World) -> usize {
        0
    }

    fn is_typing_shown(&self, _: &World) -> bool {
        false
    }

    fn fail_next(&self, _: &World, failure: Failure) {
        *self.state.failure.lock().unwrap() = Some(failure);
    }

    fn cut(&self, _: &World) {
        self.state.cut();
    }

    fn connections(&self, _: &World) -> (usize, usize) {
        *self.state.connections.lock().unwrap()
    }

    fn chat(&self) -> &'static str {
        "anna"
    }

    fn group(&self) -> &'static str {
        "#team"
    }
}

impl State {
    fn tell(&self, line: &str) {
        self.joined.lock().unwrap().retain(|client| client.send(line.to_owned()).is_ok());
    }

    fn cut(&self) {
        self.joined.lock().unwrap().clear();
        std::mem::take(&mut *self.cuts.lock().unwrap()).cancel();
    }
}

async fn serve(state: Arc<State>, stream: TcpStream) {
    let cut = state.cuts.lock().unwrap().clone();
    {
        let mut connections = state.connections.lock().unwrap();
        (connections.0, connections.1) = (connections.0 + 1, connections.1 + 1);
    }
    tokio::select! {
        () = cut.cancelled() => {}
        () = talk(&state, stream) => {}
    }
    state.connections.lock().unwrap().0 -= 1;
}

async fn talk(state: &Arc<State>, stream: TcpStream) {
    let (read, mut write) = stream.into_split();
    let (to_client, mut told) = mpsc::unbounded_channel::<String>();
    let mut lines = BufReader::new(read).lines();
    let (mut password, mut is_welcome) = (String::new(), false);
    loop {
        let line = tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => line,
                Ok(None) | Err(_) => return,
            },
            Some(line) = told.recv() => {
                say(&mut write, &line).await;
                continue;
            }
        };
        assert!(line.len() <= 510, "a line has {} bytes", line.len());
        let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "CAP" if rest.starts_with("LS") => say(&mut write, ":irc CAP * LS :multi-prefix").await,
            "PASS" => rest.trim_start_matches(':').clone_into(&mut password),
            "USER" if password != PASSWORD => {
                say(&mut write, ":irc 464 * :Password incorrect").await;
                return;
            }
            "USER" => {
                is_welcome = true;
                say(&mut write, ":irc 001 bot :Welcome").await;
            }
            "JOIN" if is_welcome => {
                say(&mut write, &format!(":bot!bot@host JOIN {rest}")).await;
                state.joined.lock().unwrap().push(to_client.clone());
            }
            "PING" => say(&mut write, &format!(":irc PONG irc {rest}")).await,
            "PRIVMSG" if is_welcome => {
                let (target, text) = rest.split_once(" :").unwrap();
                let failure = state.failure.lock().unwrap().take();
                if failure == Some(Failure::Refused) {
                    say(&mut write, &format!(":irc 401 bot {target} :No such nick")).await;
                    continue;
                }
                let got = Got { chat: target.into(), text: text.into(), ..Got::default() };
                state.got.lock().unwrap().push(got);
                if failure == Some(Failure::AnswerLost) {
                    state.joined.lock().unwrap().clear();
                    return;
                }
            }
            "QUIT" => {
                state.joined.lock().unwrap().clear();
                return;
            }
            _ => {}
        }
    }
}

async fn say(write: &mut OwnedWriteHalf, line: &str) {
    let _ = write.write_all(format!("{line}\r\n").as_bytes()).await;
}
