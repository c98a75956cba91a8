//! Chat commands: each is a turn of its own, without a model.
//!
//! Commands are idempotent: after a crash another runner executes the command again. The answer is
//! stored with the end of the turn.

mod link;

use holdfast_agent::bootstrap::Audience;
use holdfast_directory::Agent;
use holdfast_llm::ThinkingForm;
use holdfast_session::CompletionResult;
use holdfast_types::{
    Command, Directive, Entry, Fault as _, Kind, ListTopic, ModelCommand, ModelId, Note,
    QueueCommand, QueueSettings, SessionKind, Thinking,
};

use crate::{
    agents::snapshots::{AgentLookup, AgentSnapshot},
    error::Error,
    tools::chains::{ChainRequester, ChainRunner},
    turn::{
        approvals::decisions,
        participants,
        reply::completion,
        reply_settings, routing,
        state::{TurnState, count_thoughts},
        time_zone,
    },
    worker::Worker,
};

/// Lines of a list.
const MAX_LISTED: usize = 50;

const HELP: &str = "\
/status – how this conversation stands
/new – begin anew; what was said stays on record
/stop – end what runs now
/pause, /resume – hold this conversation, and let it go on
/model [default | provider:model | alias] – show or change its model
/switch channel to [telegram | last] – where it writes to you unasked
/timezone [default | Europe/Oslo] – show or say where you are
/queue [mode debounce:500ms cap:10 drop:old | reset] – what becomes of messages while it works
/link [code], /unlink – be known as one person on several channels
/compact [what matters] – summarise what was said so far
/think [off | low | medium | high] – how much it thinks before it answers
/verbose [off | on | full] – tell what it calls, and what came of it
/reasoning [off | on | stream] – show what it thinks
/elevated [off | ask | full] – its owner's word on commands that need approval
/chain [name text] – the chains there are; begins one
/approve [id] [once | always], /deny [id] – answer when it asks whether it may
/list agents | models | channels | skills – what there is
/skill name … – use a skill; /name … does the same
Before other words /think, /verbose, /reasoning and /elevated hold for that message.
Everything else is for the assistant.";

const NO_MODEL: &str = "This assistant has no model that could summarise what was said.";

const NOT_IN_GROUPS: &str = "This command is not for groups: send it in a direct conversation.";

/// The command that begins this turn, if there is one.
pub(crate) fn command(turn: &TurnState<'_>) -> Option<Command> {
    let mut heard = turn.journal.turn().iter().filter_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent => Some(body),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let command = heard.next().and_then(|body| body.command());
    let has_thought = count_thoughts(turn.journal.turn()) > 0;
    // A decision on a call of this turn is part of the turn. A compaction may ask a model
    // first.
    command.filter(|command| !has_thought || matches!(command, Command::Compact(_)))
}

/// Executes a command and ends the turn with its answer.
pub(crate) async fn execute_command(
    turn: &mut TurnState<'_>,
    command: Command,
) -> Result<CompletionResult, Error> {
    if !command.is_for(turn.kind) {
        return finish_command(turn, Note::Command, NOT_IN_GROUPS.to_owned()).await;
    }
    let text = match command {
        Command::Help => HELP.to_owned(),
        Command::Malformed(usage) => format!("That is not quite right. Use it so: {usage}"),
        Command::Status => status(turn).await?,
        Command::Stop => "Stopped.".to_owned(),
        Command::New => {
            routing::reset_routing(turn).await?;
            // The setting pre-approved commands of the conversation so far only.
            if turn.settings.elevated.take().is_some() {
                turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?;
            }
            let text = "We begin anew. What was said before stays on record.".to_owned();
            return finish_command(turn, Note::Reset, text).await;
        }
        Command::Pause => {
            let claim = &turn.lease.claim;
            turn.worker.sessions.pause(claim.tenant, claim.session).await?;
            "Paused. What you send waits until you send /resume.".to_owned()
        }
        // The gateway resumed the session when it accepted this command; nothing could claim it
        // before.
        Command::Resume => "Going on.".to_owned(),
        Command::Model(wish) => set_model(turn, wish).await?,
        Command::SwitchChannel(wish) => switch_channel(turn, wish).await?,
        Command::TimeZone(wish) => time_zone::run_timezone_command(turn, wish).await?,
        Command::Queue(wish) => set_queue(turn, wish).await?,
        Command::Link(code) => link::run_link_command(turn, code.as_deref()).await?,
        Command::Unlink => link::run_unlink_command(turn).await?,
        Command::SetDirectives(dials) => reply_settings::set_dials(turn, dials).await?,
        Command::ShowDirective(dial) => reply_settings::show_dials(turn, &[dial]).await?,
        // With a model, `compact_command.rs` executes it.
        Command::Compact(_) => NO_MODEL.to_owned(),
        Command::Chain(wanted) => run_chain_command(turn, wanted).await?,
        Command::Decide(command) => decisions::answer_decision(turn, command).await?,
        Command::List(what) => list(turn, what).await?,
    };
    finish_command(turn, Note::Command, text).await
}

async fn status(turn: &TurnState<'_>) -> Result<String, Error> {
    let claim = &turn.lease.claim;
    let view = turn.worker.sessions.views().session(claim.tenant, claim.session).await?;
    let model = model_name(turn).await?;
    let channel = turn.reply_target().map_or_else(|| "none".to_owned(), |target| target.channel);
    let dials = [Directive::Think, Directive::Verbose, Directive::Reasoning, Directive::Elevated];
    Ok(format!(
        "Model: {model}\nChannel: {channel}\nTurns: {}\nTokens: {} read, {} written\n\
         {}\nWaiting: {}\nSession: {}",
        view.turns,
        view.usage.input,
        view.usage.output,
        reply_settings::show_dials(turn, &dials).await?,
        view.waiting.saturating_sub(1),
        view.key,
    ))
}

async fn model_name(turn: &TurnState<'_>) -> Result<String, Error> {
    match &turn.settings.model {
        Some(model) => Ok(format!("{model} (set for this conversation)")),
        None => {
            let agent = agent(turn).await?;
            let choice =
                turn.worker.directory.models().of_agent(turn.lease.claim.tenant, &agent).await;
            Ok(match choice {
                Ok(choice) => choice.model.to_string(),
                Err(error) if is_transient(&error) => return Err(Error::directory(error)),
                Err(error) => format!("none: {error}"),
            })
        }
    }
}

async fn set_model(turn: &mut TurnState<'_>, wish: ModelCommand) -> Result<String, Error> {
    let model = match wish {
        ModelCommand::Show => return Ok(format!("Model: {}", model_name(turn).await?)),
        ModelCommand::Default => None,
        ModelCommand::Use(name) => match resolve_model(turn, &name).await? {
            Ok(model) => Some(model.to_string()),
            Err(why) => return Ok(why),
        },
    };
    turn.settings.model = model;
    turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?;
    Ok(format!("Model: {}", model_name(turn).await?))
}

async fn set_queue(turn: &mut TurnState<'_>, wish: QueueCommand) -> Result<String, Error> {
    match wish {
        QueueCommand::Show => {}
        QueueCommand::Wrong(why) => {
            return Ok(format!(
                "{why}. Use it so: /queue collect debounce:500ms cap:10 drop:old, or /queue reset"
            ));
        }
        QueueCommand::Reset => turn.settings.queue = QueueSettings::default(),
        QueueCommand::Set(queue) => turn.settings.queue = queue.or(turn.settings.queue),
    }
    turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?;
    match turn.settings.queue.is_default() {
        true => Ok(format!(
            "Queue: {} (the assistant's; its channel may have another)",
            agent(turn).await?.settings.queue_mode.as_str()
        )),
        false => Ok(format!("Queue: {} (set for this conversation)", turn.settings.queue)),
    }
}

/// Sets the channel for unasked messages: one by which messages of this conversation came.
async fn switch_channel(turn: &mut TurnState<'_>, wish: Option<String>) -> Result<String, Error> {
    participants::load_policy(turn).await?;
    let scope = agent(turn).await?.settings.dm_scope;
    if turn.kind == SessionKind::Main && turn.access_for_scope(scope).audience != Audience::Owner {
        return Ok("Only the owner of this conversation may do that.".to_owned());
    }
    let (sessions, claim) = (&turn.worker.sessions, &turn.lease.claim);
    if let Some(channel) = &wish {
        let views = sessions.views();
        let Some(target) = views.target_on(claim.tenant, claim.session, channel).await? else {
            let channel: String = channel.chars().take(40).collect();
            return Ok(format!(
                "You have not written to me here by `{channel}`: write to me there first."
            ));
        };
        turn.switched_target = Some(target);
    }
    turn.settings.channel.clone_from(&wish);
    turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?;
    Ok(match wish {
        Some(channel) => format!("Channel: {channel} (for what I tell you unasked)"),
        None => "Channel: the one that you used last".to_owned(),
    })
}

/// Returns why the model does not support the thinking level, if that is known.
pub(crate) async fn unsupported_thinking(
    turn: &TurnState<'_>,
    level: Option<Thinking>,
) -> Result<Option<String>, Error> {
    if level.is_none_or(|level| level == Thinking::Off) {
        return Ok(None);
    }
    let agent = agent(turn).await?;
    let agent = Agent { model: turn.settings.model.clone().or(agent.model.clone()), ..agent };
    let setup = match turn.worker.directory.models().setup(turn.lease.claim.tenant, &agent).await {
        Ok(setup) => setup,
        Err(error) if is_transient(&error) => return Err(Error::directory(error)),
        Err(_) => return Ok(None),
    };
    let first = setup.choices.first().map(|choice| &choice.model);
    // Nothing is known of a model that is not in the catalogue.
    let card = first.and_then(|model| Some((model, setup.catalogue.find(model)?)));
    Ok(card.filter(|(_, card)| card.thinking.by == ThinkingForm::No).map(|(model, _)| {
        format!("{model} cannot be told how much to think: choose another with /model.")
    }))
}

/// Resolves a model's name, or returns why it cannot be used.
async fn resolve_model(turn: &TurnState<'_>, name: &str) -> Result<Result<ModelId, String>, Error> {
    let agent = Agent { model: Some(name.to_owned()), ..agent(turn).await? };
    match turn.worker.directory.models().of_agent(turn.lease.claim.tenant, &agent).await {
        Ok(choice) => Ok(Ok(choice.model)),
        Err(error) if is_transient(&error) => Err(Error::directory(error)),
        Err(error) => Ok(Err(error.to_string())),
    }
}

pub(crate) async fn agent(turn: &TurnState<'_>) -> Result<Agent, Error> {
    let found = turn.worker.directory.agents().by_id(turn.lease.claim.tenant, turn.agent).await;
    found.map_err(Error::directory)
}

async fn run_chain_command(
    turn: &mut TurnState<'_>,
    wanted: Option<(String, String)>,
) -> Result<String, Error> {
    let Worker { sessions, directory, bus, .. } = turn.worker;
    let mesh = ChainRunner { sessions, directory, bus };
    let Some((name, text)) = wanted else {
        return mesh.list(turn.lease.claim.tenant).await.map_err(chain_error);
    };
    // The owner's roles decide whose files the steps see.
    participants::load_policy(turn).await?;
    let scope = agent(turn).await?.settings.dm_scope;
    let files = turn.access_for_scope(scope).files;
    let claim = &turn.lease.claim;
    let key = format!("{}:{}", claim.session, turn.run);
    let asker = ChainRequester {
        tenant: claim.tenant,
        session: claim.session,
        agent: turn.agent,
        idempotency_key: &key,
        files: &files,
    };
    let began = mesh.start(asker, &name, &text).await.map_err(chain_error)?;
    Ok(began.map_or_else(|why| why, |_| format!("The chain `{name}` has begun. You will be told.")))
}

async fn list(turn: &TurnState<'_>, what: ListTopic) -> Result<String, Error> {
    let (tenant, directory) = (turn.lease.claim.tenant, &turn.worker.directory);
    let lines: Vec<String> = match what {
        ListTopic::Agents => {
            let agents = directory.agents().list(tenant).await.map_err(Error::directory)?;
            agents.iter().map(|agent| format!("{}: {}", agent.name, agent.description)).collect()
        }
        ListTopic::Models => {
            let providers = directory.providers().list(tenant).await.map_err(Error::directory)?;
            let line = |default: &Option<String>, name: &str| match default {
                Some(model) => format!("{model} (the default)"),
                None => format!("{name}:<model>"),
            };
            providers.iter().map(|one| line(&one.default_model, &one.name)).collect()
        }
        ListTopic::Channels => {
            let accounts =
                directory.accounts().list(tenant, None).await.map_err(Error::directory)?;
            let enabled = accounts.iter().filter(|account| account.enabled);
            enabled.map(|account| format!("{} {}", account.channel, account.name)).collect()
        }
        ListTopic::Skills => {
            let model = turn.settings.model.clone();
            match turn.worker.agents.find(tenant, turn.agent, model).await? {
                AgentLookup::Ready(snapshot) => invocable_skills(&snapshot),
                AgentLookup::NoAgent | AgentLookup::NoModel(_) => Vec::new(),
            }
        }
    };
    Ok(format_list(&lines))
}

pub(crate) async fn finish_command(
    turn: &mut TurnState<'_>,
    note: Note,
    text: String,
) -> Result<CompletionResult, Error> {
    metrics::counter!("holdfast_runner_commands_total").increment(1);
    completion::finish_with_note(turn, Entry::noted(note, text.clone()), text).await
}

/// Skills that users may invoke, one per line.
fn invocable_skills(snapshot: &AgentSnapshot) -> Vec<String> {
    let skills = snapshot.skills.skill_set.skills();
    let skills = skills.filter(|skill| skill.manifest.user_invocable && skill.is_usable());
    skills.map(|skill| format!("/{}: {}", skill.name(), skill.manifest.description)).collect()
}

fn chain_error(source: anyhow::Error) -> Error {
    Error::Tool { name: "chain_run".to_owned(), source }
}

fn format_list(lines: &[String]) -> String {
    match lines.len() {
        0 => "There are none.".to_owned(),
        n if n > MAX_LISTED => {
            format!("{}\n… and {} more", lines[..MAX_LISTED].join("\n"), n - MAX_LISTED)
        }
        _ => lines.join("\n"),
    }
}

fn is_transient(error: &holdfast_directory::Error) -> bool {
    error.kind().is_transient() || error.kind() == Kind::Internal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let lines: Vec<String> = (0..52).map(|n| n.to_string()).collect();

        assert!(format_list(&lines).ends_with("49\n… and 2 more"));
        assert_eq!(format_list(&lines[..2]), "0\n1");
        assert_eq!(format_list(&[]), "There are none.");
    }
}
