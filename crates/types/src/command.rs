//! Commands: messages that the mesh answers itself, without a model (spec UIC-003).
//!
//! A command is a message that begins with `/` and a word of the table below. It is stored once,
//! answered once and in order, as every message is. Any other text that begins with `/` goes to the
//! agent.
//!
//! | command | effect | in groups |
//! |---|---|---|
//! | `/help` | lists the commands | yes |
//! | `/status`, `/show model`, `/show channel` | shows the session's state | yes |
//! | `/stop` | ends the running turn and the messages that wait before the command | yes |
//! | `/new`, `/reset` | starts the conversation anew; the old entries stay on record, but after `/reset` other conversations do not find them | no |
//! | `/pause`, `/resume` | pauses and resumes the session | no |
//! | `/model`, `/switch model to …` | shows or sets the session's model | no |
//! | `/switch channel to …` | sends unasked messages of the session to another channel on which it is held | no |
//! | `/timezone`, `/timezone Europe/Oslo`, `/timezone default` | shows or sets the user's time zone | no |
//! | `/queue`, `/queue collect debounce:500ms cap:10 drop:old`, `/queue reset` | shows or sets what becomes of messages during a turn | no |
//! | `/link`, `/link <code>`, `/unlink` | links accounts of one person on several channels | no |
//! | `/think`, `/verbose`, `/reasoning`, `/elevated`, each with a level | how messages are answered (spec UIC-004) | no |
//! | `/compact`, `/compact <what matters>` | summarises the conversation now | no |
//! | `/chain`, `/chain <name> <text>` | lists the chains, or starts one (spec RTE-016) | no |
//! | `/approve [id] [once\|always]`, `/deny [id] [reason]` | decides an approval | who may |
//! | `/list agents`, `/list models`, `/list channels`, `/list skills`, `/show agents` | lists what the tenant has | no |

use crate::{
    ApprovalDecision, ApprovalId, Body, Directive, Directives, QueueSettings, SessionKind,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Help,
    Status,
    Stop,
    New,
    Pause,
    Resume,
    Model(ModelCommand),
    /// Channel for unasked messages of the session; `None` is the one that was used last.
    SwitchChannel(Option<String>),
    TimeZone(TimeZoneCommand),
    Queue(QueueCommand),
    /// Shows the linked accounts and a code for another; with a code, links this account.
    Link(Option<String>),
    Unlink,
    /// Sets directives for the session.
    SetDirectives(Directives),
    /// Shows the level of one directive.
    ShowDirective(Directive),
    /// Compaction, with a text that says what matters; may be empty.
    Compact(String),
    /// Starts a chain, by name and with its input; `None` lists the chains.
    Chain(Option<(String, String)>),
    /// Decides an approval.
    Decide(DecisionCommand),
    List(ListTopic),
    /// Malformed command; holds its usage.
    Malformed(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionCommand {
    /// Id of the approval as its request shows it; `None` if there is only one.
    pub id: Option<String>,
    pub verdict: ApprovalDecision,
    /// Why the call is denied, as the person wrote it.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCommand {
    Show,
    Default,
    Use(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeZoneCommand {
    Show,
    Default,
    /// Name of a time zone, not validated.
    Use(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueCommand {
    Show,
    Reset,
    Set(QueueSettings),
    /// Why the settings are wrong.
    Wrong(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListTopic {
    Agents,
    /// The models of the tenant's providers.
    Models,
    Channels,
    /// The skills of the agent that people may call.
    Skills,
}

impl Command {
    /// Parses a command; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let said = text.trim().strip_prefix('/')?;
        let mut words = said.split_whitespace().filter(|_| !said.starts_with(char::is_whitespace));
        // In a group a platform appends the addressee: `/status@our_bot`.
        let name = words.next()?.split('@').next().unwrap_or_default().to_ascii_lowercase();
        let rest: Vec<&str> = words.collect();
        let plain = |command: Self, usage: &'static str| match rest.as_slice() {
            [] => command,
            _ => Self::Malformed(usage),
        };
        Some(match name.as_str() {
            "help" | "commands" => plain(Self::Help, "/help"),
            "status" => plain(Self::Status, "/status"),
            "stop" | "cancel" => plain(Self::Stop, "/stop"),
            "new" | "reset" => plain(Self::New, "/new"),
            "pause" => plain(Self::Pause, "/pause"),
            "resume" => plain(Self::Resume, "/resume"),
            "model" => Self::model(&rest, "/model, /model default, or /model <provider>:<model>"),
            "timezone" => match rest.as_slice() {
                [] => Self::TimeZone(TimeZoneCommand::Show),
                ["default"] => Self::TimeZone(TimeZoneCommand::Default),
                [zone] => Self::TimeZone(TimeZoneCommand::Use((*zone).to_owned())),
                _ => Self::Malformed("/timezone, /timezone default, or /timezone Europe/Oslo"),
            },
            "queue" => Self::Queue(match rest.as_slice() {
                [] => QueueCommand::Show,
                ["reset" | "default"] => QueueCommand::Reset,
                words => {
                    QueueSettings::parse(words).map_or_else(QueueCommand::Wrong, QueueCommand::Set)
                }
            }),
            "link" => match rest.as_slice() {
                [] => Self::Link(None),
                [code] => Self::Link(Some((*code).to_owned())),
                _ => Self::Malformed("/link, or /link <code>"),
            },
            "unlink" => plain(Self::Unlink, "/unlink"),
            "chain" => Self::chain(said),
            "compact" => Self::Compact(text_after_name(said).to_owned()),
            "approve" => Self::approve(&rest),
            "deny" => Self::deny(text_after_name(said)),
            "show" => Self::show(&rest),
            "list" => Self::list(&rest),
            "switch" => match rest.as_slice() {
                ["model", "to", model @ ..] => Self::model(model, SWITCH_USAGE),
                ["channel", "to", "last" | "default"] => Self::SwitchChannel(None),
                ["channel", "to", channel] => Self::SwitchChannel(Some(channel.to_lowercase())),
                _ => Self::Malformed(SWITCH_USAGE),
            },
            other => return Self::parse_directive(other, text, &rest),
        })
    }

    fn model(words: &[&str], usage: &'static str) -> Self {
        Self::Model(match words {
            [] => ModelCommand::Show,
            ["default"] => ModelCommand::Default,
            [model] => ModelCommand::Use((*model).to_owned()),
            _ => return Self::Malformed(usage),
        })
    }

    /// Returns a directive to show or to set; `None` if the message has other text too.
    fn parse_directive(name: &str, text: &str, rest: &[&str]) -> Option<Self> {
        let dial = Directive::named(name)?;
        match (Directives::split(text), rest) {
            (Some((dials, "")), _) => Some(Self::SetDirectives(dials)),
            (_, []) => Some(Self::ShowDirective(dial)),
            (Some((_, said)), _) if !begins_with_directive(said, dial) => None,
            _ => Some(Self::Malformed(dial.usage())),
        }
    }

    fn chain(said: &str) -> Self {
        let rest = text_after_name(said);
        match rest.split_once(char::is_whitespace) {
            Some((name, text)) => Self::Chain(Some((name.to_owned(), text.trim().to_owned()))),
            None if rest.is_empty() => Self::Chain(None),
            None => Self::Malformed("/chain, or /chain <name> <what is asked of it>"),
        }
    }

    /// `/deny`, `/deny <id>`, `/deny <id> <reason>` or `/deny <reason>`; a single word is an id.
    fn deny(said: &str) -> Self {
        let (first, rest) = said.split_once(char::is_whitespace).unwrap_or((said, ""));
        let (id, reason) = match rest {
            "" => (first, ""),
            rest if is_approval_id(first) => (first, rest),
            _ => ("", said),
        };
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let verdict = ApprovalDecision::Deny;
        Self::Decide(DecisionCommand { id: given(id), verdict, reason: given(reason) })
    }

    fn approve(words: &[&str]) -> Self {
        let allowing = |word: &str| {
            ApprovalDecision::parse(word).filter(|word| *word != ApprovalDecision::Deny)
        };
        let (id, verdict) = match words {
            [] => (None, Some(ApprovalDecision::Once)),
            [word] => match allowing(word) {
                Some(verdict) => (None, Some(verdict)),
                None => (Some(*word), Some(ApprovalDecision::Once)),
            },
            [id, word] => (Some(*id), allowing(word)),
            _ => (None, None),
        };
        verdict.map_or(Self::Malformed(APPROVE_USAGE), |verdict| {
            Self::Decide(DecisionCommand { id: id.map(str::to_owned), verdict, reason: None })
        })
    }

    fn show(words: &[&str]) -> Self {
        match words {
            ["model"] => Self::Model(ModelCommand::Show),
            ["channel"] => Self::Status,
            ["agents"] => Self::List(ListTopic::Agents),
            _ => Self::Malformed("/show model, /show channel, or /show agents"),
        }
    }

    fn list(words: &[&str]) -> Self {
        match words {
            ["agents"] => Self::List(ListTopic::Agents),
            ["models"] => Self::List(ListTopic::Models),
            ["channels"] => Self::List(ListTopic::Channels),
            ["skills"] => Self::List(ListTopic::Skills),
            _ => Self::Malformed("/list agents, /list models, /list channels, or /list skills"),
        }
    }

    /// Whether everybody in a session of this kind may use the command. Groups may not use commands
    /// that change the session for all or list the tenant's resources.
    #[must_use]
    pub const fn is_for(&self, kind: SessionKind) -> bool {
        match (self, kind) {
            (Self::Help | Self::Status | Self::Stop | Self::Malformed(_), _) => true,
            // The right to decide in a group is checked when the command is carried out.
            (Self::Decide(_), _) => true,
            (_, SessionKind::Group | SessionKind::Topic) => false,
            _ => true,
        }
    }
}

const APPROVE_USAGE: &str = "/approve, /approve <id>, or /approve <id> always";
fn text_after_name(said: &str) -> &str {
    said.trim_start_matches(|c: char| !c.is_whitespace()).trim()
}

/// Whether a word has the form of an approval's id, whole or its last eight characters.
fn is_approval_id(word: &str) -> bool {
    word.parse::<ApprovalId>().is_ok()
        || (word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether the rest begins with the same directive, but without a valid level.
fn begins_with_directive(said: &str, dial: Directive) -> bool {
    let first = said.split_whitespace().next().and_then(|word| word.strip_prefix('/'));
    first.and_then(Directive::named) == Some(dial)
}

const SWITCH_USAGE: &str =
    "/switch model to <provider>:<model>, /switch channel to <channel>, or /switch channel to last";

impl Body {
    /// Returns the command in this message. Events, silent messages and messages of a seeded
    /// history are never commands.
    #[must_use]
    pub fn command(&self) -> Option<Command> {
        if self.silent || self.event.is_some() || self.role.is_some() {
            return None;
        }
        Command::parse(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Elevated, Thinking};

    #[test]
    fn commands_are_read_whatever_their_case_and_whomever_they_name() {
        let none = Directives::default();
        let model = |name: &str| Command::Model(ModelCommand::Use(name.into()));
        let command = |id: Option<&str>, verdict, reason: Option<&str>| {
            let (id, reason) = (id.map(str::to_owned), reason.map(str::to_owned));
            Command::Decide(DecisionCommand { id, verdict, reason })
        };
        let decide = |id, verdict| command(id, verdict, None);
        let deny = |id, reason| command(id, ApprovalDecision::Deny, Some(reason));
        for (text, command) in [
            ("/help", Command::Help),
            (" /Status@our_bot\n", Command::Status),
            ("/reset", Command::New),
            ("/stop", Command::Stop),
            ("/model", Command::Model(ModelCommand::Show)),
            ("/model default", Command::Model(ModelCommand::Default)),
            ("/model openai:gpt-5", model("openai:gpt-5")),
            ("/switch model to a:b", model("a:b")),
            ("/switch channel to Telegram", Command::SwitchChannel(Some("telegram".into()))),
            ("/switch channel to last", Command::SwitchChannel(None)),
            ("/timezone", Command::TimeZone(TimeZoneCommand::Show)),
            ("/timezone default", Command::TimeZone(TimeZoneCommand::Default)),
            (
                "/Timezone Europe/Oslo",
                Command::TimeZone(TimeZoneCommand::Use("Europe/Oslo".into())),
            ),
            ("/queue", Command::Queue(QueueCommand::Show)),
            ("/queue reset", Command::Queue(QueueCommand::Reset)),
            (
                "/queue collect cap:3",
                Command::Queue(QueueCommand::Set(QueueSettings {
                    mode: Some(crate::QueueMode::Collect),
                    cap: Some(3),
                    ..QueueSettings::default()
                })),
            ),
            ("/link", Command::Link(None)),
            ("/Link@our_bot ABCD2345", Command::Link(Some("ABCD2345".into()))),
            ("/unlink", Command::Unlink),
            ("/show agents", Command::List(ListTopic::Agents)),
            ("/list models", Command::List(ListTopic::Models)),
            ("/list skills", Command::List(ListTopic::Skills)),
            ("/chain", Command::Chain(None)),
            (
                "/chain build  a house\n\nwith a door",
                Command::Chain(Some(("build".into(), "a house\n\nwith a door".into()))),
            ),
            ("/think", Command::ShowDirective(Directive::Think)),
            ("/Verbose@our_bot", Command::ShowDirective(Directive::Verbose)),
            (
                "/think high",
                Command::SetDirectives(Directives { thinking: Some(Thinking::High), ..none }),
            ),
            (
                "/think high /elevated ask",
                Command::SetDirectives(Directives {
                    thinking: Some(Thinking::High),
                    elevated: Some(Elevated::Ask),
                    ..none
                }),
            ),
            ("/compact", Command::Compact(String::new())),
            ("/compact keep  the\nnames", Command::Compact("keep  the\nnames".into())),
            ("/approve", decide(None, ApprovalDecision::Once)),
            ("/approve Always", decide(None, ApprovalDecision::Always)),
            ("/approve 1a2b3c4d", decide(Some("1a2b3c4d"), ApprovalDecision::Once)),
            (
                "/Approve@our_bot 1a2b3c4d always",
                decide(Some("1a2b3c4d"), ApprovalDecision::Always),
            ),
            ("/deny", decide(None, ApprovalDecision::Deny)),
            ("/deny 1a2b3c4d", decide(Some("1a2b3c4d"), ApprovalDecision::Deny)),
            ("/deny 1a2b3c4d not  on Friday", deny(Some("1a2b3c4d"), "not  on Friday")),
            ("/deny not on Friday", deny(None, "not on Friday")),
        ] {
            assert_eq!(Command::parse(text), Some(command), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_command_is_the_agents_to_read() {
        for text in [
            "",
            "/",
            "//",
            "status",
            "/etc/passwd is odd",
            "/newest",
            "see /help",
            "/ help",
            "/think high what is 2+2?",
            "what is 2+2? /think high",
        ] {
            assert_eq!(Command::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_command_with_something_wrong_says_how_it_is_used() {
        for text in [
            "/new york",
            "/list",
            "/switch model",
            "/switch channel",
            "/switch channel to x y",
            "/model a b",
            "/timezone New York",
            "/link a b",
            "/unlink me",
            "/think hard",
            "/think about it",
            "/think about it /verbose on",
            "/reasoning full",
            "/chain build",
            "/approve a b",
            "/approve a deny",
        ] {
            assert!(matches!(Command::parse(text), Some(Command::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn only_what_somebody_says_for_themselves_is_a_command() {
        let body = Body::text("/new");
        assert_eq!(body.command(), Some(Command::New));
        assert_eq!(Body { silent: true, ..body.clone() }.command(), None);
        assert_eq!(Body { role: Some("assistant".into()), ..body.clone() }.command(), None);
        assert_eq!(Body { event: Some("timer".into()), ..body }.command(), None);
    }

    #[test]
    fn a_group_cannot_change_or_list_what_is_not_its_own() {
        for kind in [SessionKind::Group, SessionKind::Topic] {
            assert!(Command::Status.is_for(kind) && Command::Stop.is_for(kind));
            assert!(!Command::New.is_for(kind) && !Command::List(ListTopic::Agents).is_for(kind));
        }
        assert!(Command::New.is_for(SessionKind::Dm));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in any::<String>()) {
            let _: Option<Command> = Command::parse(&text);
        }
    }
}
