//! `holdfast tui`: conversations in a full-screen terminal interface.
//!
//! [`state`] decides what is shown and what a key does, without I/O; [`view`] draws it; [`network`]
//! calls the gateway. A turn whose connection breaks is followed on a new one, and the journal
//! brings what was missed.

mod input;
mod markdown;
mod network;
mod state;
mod text;
mod view;

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use clap::Args;
use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyEventKind},
    execute,
};
use holdfast_kit::shutdown;
use holdfast_proto::gateway::v1::ListAgentsRequest;
use holdfast_types::{AgentName, SessionKey};
use ratatui::DefaultTerminal;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;

use self::{
    network::Network,
    state::{Effect, State, Update},
    view::Theme,
};
use crate::{client::Client, error::Error, screen::Screen};

/// Interval at which a running turn's time is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Number of ticks between two questions about the state of the session.
const POLL_TICKS: u32 = 20;

#[derive(Debug, Args)]
pub struct TuiArgs {
    /// Name of the agent [default: the tenant's default agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,

    /// The session: a key, or any name of your choice [default: the agent's main session]
    #[arg(long, default_value = "", hide_default_value = true)]
    session: String,
}

/// Runs `holdfast tui`.
///
/// # Errors
///
/// If this is no terminal, or the gateway refuses the credential.
pub async fn run(args: TuiArgs, client: Client, screen: &Screen) -> Result<(), Error> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Error::NoAnswer(
            "this is no terminal: `holdfast chat` works in pipes and scripts".to_owned(),
        ));
    }
    let (agent, session) = session(&args, &client).await?;
    let stop = shutdown::on_signal()?;
    let theme = Theme { has_color: screen.has_color(true) };
    let mut terminal = ratatui::try_init()?;
    drop(execute!(io::stdout(), EnableBracketedPaste));
    let outcome = App::new(client, State::new(agent, session), theme).run(&mut terminal, &stop);
    let outcome = outcome.await;
    drop(execute!(io::stdout(), DisableBracketedPaste));
    ratatui::restore();
    outcome
}

/// Returns the names of the agent and of the session's key.
async fn session(args: &TuiArgs, client: &Client) -> Result<(String, String), Error> {
    let request = client.request(ListAgentsRequest {});
    let agents = client.answer(client.agents().list_agents(request).await)?.agents;
    let session = args.session.as_str();
    // A key names its agent.
    let of_key = session.strip_prefix("agent:").and_then(|rest| rest.split(':').next());
    let wanted = of_key.filter(|_| args.agent.is_empty()).unwrap_or(&args.agent);
    let agent = agents
        .into_iter()
        .find(|agent| match wanted {
            "" => agent.is_default,
            wanted => agent.name == AgentName::new(wanted).as_str(),
        })
        .ok_or_else(|| Error::NotFound(format!("there is no agent `{wanted}`")))?
        .name;
    let name = AgentName::new(&agent);
    let key = match session {
        "" => SessionKey::main(&name).to_string(),
        key if key.starts_with("agent:") || key.starts_with("ses_") => key.to_owned(),
        name_of_session => {
            let key = SessionKey::api(&name, name_of_session);
            key.map_err(|error| Error::Usage(error.to_string()))?.to_string()
        }
    };
    Ok((agent, key))
}

struct App {
    state: State,
    network: Network,
    updates: mpsc::UnboundedReceiver<(u64, Update)>,
    theme: Theme,
    /// Task that follows the turn.
    turn: Option<JoinHandle<()>>,
}

impl App {
    fn new(client: Client, state: State, theme: Theme) -> Self {
        let (send, updates) = mpsc::unbounded_channel();
        let session = state.session.clone();
        let network = Network { client, session, view: 0, updates: send };
        Self { state, network, updates, theme, turn: None }
    }

    async fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let mut events = EventStream::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until_poll = POLL_TICKS;
        self.network.load_history();
        let mut is_stale = true;
        loop {
            if std::mem::replace(&mut is_stale, true) {
                terminal.draw(|frame| {
                    view::draw(frame, &mut self.state, self.theme, Instant::now());
                })?;
            }
            let effects = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = events.next() => match event {
                    Some(event) => self.event(event?),
                    None => return Ok(()),
                },
                Some(update) = self.updates.recv() => self.drain(update),
                _ = ticks.tick() => {
                    until_poll -= 1;
                    if until_poll == 0 {
                        until_poll = POLL_TICKS;
                        self.network.poll();
                    }
                    // Only these show a time.
                    is_stale = self.state.turn.is_some() || self.state.approval().is_some();
                    Vec::new()
                }
            };
            for effect in effects {
                if effect == Effect::Quit {
                    return Ok(());
                }
                self.perform(effect);
            }
        }
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.state.key(key, Instant::now())
            }
            Event::Paste(text) => {
                self.state.input.insert(&text);
                Vec::new()
            }
            // Another size: everything is drawn anew.
            _ => Vec::new(),
        }
    }

    /// Applies all updates that are there, so that they are drawn once.
    fn drain(&mut self, first: (u64, Update)) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut next = Some(first);
        while let Some((view, update)) = next {
            if view == self.network.view {
                effects.extend(self.state.update(update));
            }
            next = self.updates.try_recv().ok();
        }
        effects
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send(text) => self.turn = Some(self.network.send(text)),
            Effect::Follow(message) => self.turn = Some(self.network.follow(message)),
            Effect::Queue(text) => self.network.queue(text),
            Effect::Cancel => self.network.cancel(),
            Effect::Decide(approval, decision) => self.network.decide(approval, decision),
            Effect::LoadSessions => self.network.list_sessions(),
            Effect::LoadHistory => self.network.load_history(),
            Effect::Opened => {
                // The turn goes on without being watched.
                if let Some(turn) = self.turn.take() {
                    turn.abort();
                }
                self.network.view += 1;
                self.network.session.clone_from(&self.state.session);
                self.network.load_history();
                self.network.poll();
            }
            Effect::Quit => {}
        }
    }
}
