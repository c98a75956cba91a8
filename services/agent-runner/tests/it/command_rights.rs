//! Each command on a channel, by each kind of sender: whom it is for. The outcome is the last table of
//! `docs/rights.md`, which `HOLDFAST_WRITE_RIGHTS=1` rewrites.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use holdfast_directory::Actor;
use holdfast_session::NewMessage;
use holdfast_testkit::generated::check_part;
use holdfast_types::{AccountId, Author, Body, Command, Directive, SessionKey};
use serde_json::json;

use crate::{
    approvals::{Launch, bot, launches, on_channel, rests, runner, waiting},
    world::World,
};

/// Somebody who writes.
struct Sender {
    column: &'static str,
    id: &'static str,
    is_listed: bool,
    is_verified: bool,
    is_in_group: bool,
}

const SENDERS: [Sender; 7] = [
    Sender { column: "owner", id: "1", is_listed: false, is_verified: true, is_in_group: false },
    Sender { column: "listed", id: "7", is_listed: true, is_verified: true, is_in_group: false },
    Sender { column: "guest", id: "8", is_listed: false, is_verified: true, is_in_group: false },
    // Says to be the owner.
    Sender {
        column: "unverified",
        id: "1",
        is_listed: true,
        is_verified: false,
        is_in_group: false,
    },
    Sender {
        column: "owner, in a group",
        id: "1",
        is_listed: false,
        is_verified: true,
        is_in_group: true,
    },
    Sender {
        column: "listed, in a group",
        id: "7",
        is_listed: true,
        is_verified: true,
        is_in_group: true,
    },
    Sender {
        column: "guest, in a group",
        id: "8",
        is_listed: false,
        is_verified: true,
        is_in_group: true,
    },
];

/// A command, and how its answer begins if it is carried out.
const COMMANDS: &[(&str, &str)] = &[
    ("/help", "/status – "),
    ("/status", "Model: fake:one"),
    ("/stop", "Stopped."),
    ("/new", "We begin anew."),
    ("/reset", "We begin anew."),
    ("/pause", "Paused."),
    ("/resume", "Going on."),
    ("/model", "Model: fake:one"),
    ("/model fake:two", "Model: fake:two"),
    ("/switch channel to last", "Channel: "),
    ("/timezone", "Time zone: "),
    ("/timezone Europe/Oslo", "Time zone: "),
    ("/queue", "Queue: "),
    ("/queue collect", "Queue: collect"),
    ("/link", "This account is not linked"),
    ("/link AAAABBBB", "There is no such code"),
    ("/unlink", "This account is not linked"),
    ("/think", "Thinking: "),
    ("/think high", "Thinking: high"),
    ("/verbose on", "Verbose: on"),
    ("/reasoning on", "Reasoning: on"),
    ("/elevated", "Elevated: "),
    ("/elevated off", "Elevated: off"),
    ("/elevated full", "Elevated: full"),
    ("/compact", "There is nothing to summarise yet."),
    ("/chain", "plan-work-review: "),
    ("/chain build a house", "there is no chain `build`"),
    ("/list agents", "main: "),
    ("/list models", "fake:one"),
    ("/list channels", "telegram bot"),
    ("/list skills", ""),
    ("/approve", "launched rocket"),
    ("/deny", "error: a person denied this call"),
    ("/think much", "That is not quite right."),
];

/// Beginnings of the answers to somebody for whom a command is not.
const REFUSALS: [&str; 6] = [
    "This command is not for groups",
    "This is not for guests",
    "Only the owner of this",
    "You may not decide",
    "This channel cannot tell whether you are",
    "Send this in a direct conversation",
];

/// Kind of a command. A new one does not compile here: it needs a row above.
const fn kind(command: &Command) -> &'static str {
    match command {
        Command::Help => "help",
        Command::Status => "status",
        Command::Stop => "stop",
        Command::New => "new",
        Command::Pause => "pause",
        Command::Resume => "resume",
        Command::Model(_) => "model",
        Command::SwitchChannel(_) => "switch channel",
        Command::TimeZone(_) => "time zone",
        Command::Queue(_) => "queue",
        Command::Link(_) => "link",
        Command::Unlink => "unlink",
        Command::SetDirectives(_) => "set directives",
        Command::ShowDirective(directive) => match directive {
            Directive::Think | Directive::Verbose | Directive::Reasoning | Directive::Elevated => {
                "show directive"
            }
        },
        Command::Compact(_) => "compact",
        Command::Chain(_) => "chain",
        Command::Decide(_) => "decide",
        Command::List(_) => "list",
        Command::Malformed(_) => "malformed",
    }
}

/// Number of kinds above.
const KINDS: usize = 19;

#[test]
fn every_command_is_tried() {
    let tried = COMMANDS.iter().map(|(text, _)| kind(&Command::parse(text).unwrap()));

    assert_eq!(tried.collect::<BTreeSet<_>>().len(), KINDS);
}

struct Channel {
    world: World,
    bot: AccountId,
}

impl Channel {
    /// A message of a sender, in a conversation of this number.
    fn message(&self, sender: &Sender, conversation: usize, text: &str) -> NewMessage {
        let kind = if sender.is_in_group { "group" } else { "dm" };
        let key = format!("agent:main:{kind}:telegram:{conversation}");
        let key: SessionKey = key.parse().unwrap();
        let message = on_channel(&self.world, &key, self.bot, sender.id, text);
        let roles = if sender.is_listed { vec!["member".to_owned()] } else { Vec::new() };
        let author = match sender.is_verified {
            true => Author { id: format!("telegram:{}", sender.id), roles },
            false => Author::unverified("telegram", sender.id),
        };
        NewMessage { body: Body { author: Some(author), ..message.body }, ..message }
    }

    /// Whether a command is carried out.
    async fn is_for(
        &self,
        sender: &Sender,
        conversation: usize,
        (text, done): (&str, &str),
    ) -> anyhow::Result<bool> {
        let is_decision = matches!(Command::parse(text), Some(Command::Decide(_)));
        if is_decision {
            let asked = self.world.send(self.message(sender, conversation, "go")).await?;
            waiting(&self.world, 1).await?;
            rests(&self.world, &asked).await?;
        }
        let sent = self.world.send(self.message(sender, conversation, text)).await?;
        let ended = self.world.answer(&sent).await?;
        let answer = ended.reason.filter(|_| ended.text.is_empty()).unwrap_or(ended.text);
        if is_decision {
            self.decide().await?;
        }
        let is_refused = REFUSALS.iter().any(|refusal| answer.starts_with(refusal));
        anyhow::ensure!(
            is_refused || answer.starts_with(done),
            "{text} by {}: {answer}",
            sender.column
        );
        Ok(!is_refused)
    }

    /// Ends what still waits for a decision.
    async fn decide(&self) -> anyhow::Result<()> {
        let sql = "update session.approvals set state = 'expired' where state = 'pending'";
        self.world.admin(sql).await.map(drop)
    }
}

#[tokio::test]
async fn commands_are_for_whom_the_page_says() -> anyhow::Result<()> {
    let world = World::start().await?;
    let policy = json!({ "owners": ["telegram:1"] });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    launches(&world, &["rocket"]);
    let _runner = runner(&world, &Launch::default()).await?;
    let bot = bot(&world).await?;
    let channel = Channel { world, bot };

    let mut rows: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    let mut wrong = Vec::new();
    for (at, command) in COMMANDS.iter().enumerate() {
        let mut cells = Vec::new();
        for (number, sender) in SENDERS.iter().enumerate() {
            let conversation = 1000 + at * 10 + number;
            cells.push(match channel.is_for(sender, conversation, *command).await {
                Ok(true) => "yes",
                Ok(false) => "–",
                Err(error) => {
                    wrong.push(error.to_string());
                    "?"
                }
            });
        }
        match rows.iter_mut().find(|(_, known)| *known == cells) {
            Some((commands, _)) => commands.push(command.0),
            None => rows.push((vec![command.0], cells)),
        }
    }

    anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let columns: Vec<&str> = SENDERS.iter().map(|sender| sender.column).collect();
    let mut text = format!("| commands | {} |\n|---|", columns.join(" | "));
    text.push_str(&"---|".repeat(columns.len()));
    text.push('\n');
    for (commands, cells) in rows {
        let _ = writeln!(text, "| `{}` | {} |", commands.join("`, `"), cells.join(" | "));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rights.md");
    check_part(&page, "commands", &text, "HOLDFAST_WRITE_RIGHTS")
}
