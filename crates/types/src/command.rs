//! Commands: what a person says to the mesh rather than to the agent (spec UIC-003).
//!
//! A command is a message of its own that begins with `/` and a word from the
//! table below. It goes the way of every message (stored once, answered once, in
//! order) and is answered without a model. Any other text that begins with `/`
//! is the agent's to read.
//!
//! | command | what | in groups |
//! |---|---|---|
//! | `/help` | what there is | yes |
//! | `/status`, `/show model`, `/show channel` | how the conversation stands | yes |
//! | `/stop` | ends what runs, and what waits before it | yes |
//! | `/new`, `/reset` | the conversation begins anew; what was said stays on record | no |
//! | `/pause`, `/resume` | holds the conversation, and lets it go on | no |
//! | `/model`, `/switch model to …` | the model of this conversation | no |
//! | `/timezone`, `/timezone Europe/Oslo`, `/timezone default` | where its person is | no |
//! | `/think`, `/verbose`, `/reasoning`, `/elevated`, each with a level | how one is answered (spec UIC-004, `dial.rs`) | no |
//! | `/compact`, `/compact <what matters>` | what was said is summarised now | no |
//! | `/chain`, `/chain <name> <text>` | the chains there are; begins one (spec RTE-016) | no |
//! | `/approve [id] [once\|always]`, `/deny [id]` | a person's word on a call that waits for it | who may |
//! | `/list agents`, `/list models`, `/list channels`, `/list skills`, `/show agents` | what the tenant has | no |

use crate::{Body, Dial, Dials, SessionKind, Verdict};

/// A command, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// What commands there are.
    Help,
    /// How the conversation stands.
    Status,
    /// End what runs.
    Stop,
    /// Begin anew.
    New,
    /// Hold the conversation.
    Pause,
    /// Let it go on.
    Resume,
    /// Show the model, or take another one.
    Model(ModelWish),
    /// Show on whose clock it goes, or take another one.
    TimeZone(ZoneWish),
    /// Turn these dials.
    Turn(Dials),
    /// Show how one stands.
    Show(Dial),
    /// Summarise what was said, with regard to this if it says anything.
    Compact(String),
    /// Begin a chain, by its name, with what is asked of it; `None` shows those there are.
    Chain(Option<(String, String)>),
    /// A person's word on a call that waits for it; which, where that is not plain.
    Decide {
        /// The call, as the request names it.
        id: Option<String>,
        /// The word.
        verdict: Verdict,
    },
    /// Show what the tenant has.
    List(Listed),
    /// It is a command, and what follows it is not right: how it is used.
    Wrong(&'static str),
}

/// What somebody wants of a conversation's model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelWish {
    /// To know which it is.
    Show,
    /// The agent's own.
    Default,
    /// This one.
    Use(String),
}

/// What somebody wants of a conversation's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZoneWish {
    /// To know which it is.
    Show,
    /// The agent's.
    Default,
    /// That of this zone, of which it is not known whether there is one.
    Use(String),
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// The tenant's agents.
    Agents,
    /// The models of its providers.
    Models,
    /// Its accounts on channels.
    Channels,
    /// The skills of the agent that people may call.
    Skills,
}

impl Command {
    /// Reads a command out of a text; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let said = text.trim().strip_prefix('/')?;
        let mut words = said.split_whitespace().filter(|_| !said.starts_with(char::is_whitespace));
        // In a group a platform appends whom it is for: `/status@our_bot`.
        let name = words.next()?.split('@').next().unwrap_or_default().to_ascii_lowercase();
        let rest: Vec<&str> = words.collect();
        let plain = |command: Self, usage: &'static str| match rest.as_slice() {
            [] => command,
            _ => Self::Wrong(usage),
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
                [] => Self::TimeZone(ZoneWish::Show),
                ["default"] => Self::TimeZone(ZoneWish::Default),
                [zone] => Self::TimeZone(ZoneWish::Use((*zone).to_owned())),
                _ => Self::Wrong("/timezone, /timezone default, or /timezone Europe/Oslo"),
            },
            "chain" => Self::chain(said),
            "compact" => Self::Compact(after_name(said).to_owned()),
            "approve" => Self::approve(&rest),
            "deny" => match rest.as_slice() {
                [] => Self::Decide { id: None, verdict: Verdict::Deny },
                [id] => Self::Decide { id: Some((*id).to_owned()), verdict: Verdict::Deny },
                _ => Self::Wrong("/deny, or /deny <id>"),
            },
            "show" => Self::show(&rest),
            "list" => Self::list(&rest),
            "switch" => match rest.as_slice() {
                ["model", "to", model @ ..] => Self::model(model, SWITCH),
                _ => Self::Wrong(SWITCH),
            },
            other => return Self::dial(other, text, &rest),
        })
    }

    fn model(words: &[&str], usage: &'static str) -> Self {
        Self::Model(match words {
            [] => ModelWish::Show,
            ["default"] => ModelWish::Default,
            [model] => ModelWish::Use((*model).to_owned()),
            _ => return Self::Wrong(usage),
        })
    }

    /// A dial that is shown or turned; `None` where something else is said with it.
    fn dial(name: &str, text: &str, rest: &[&str]) -> Option<Self> {
        let dial = Dial::named(name)?;
        match (Dials::split(text), rest) {
            (Some((dials, "")), _) => Some(Self::Turn(dials)),
            (_, []) => Some(Self::Show(dial)),
            (Some((_, said)), _) if !begins_with(said, dial) => None,
            _ => Some(Self::Wrong(dial.usage())),
        }
    }

    fn chain(said: &str) -> Self {
        let rest = after_name(said);
        match rest.split_once(char::is_whitespace) {
            Some((name, text)) => Self::Chain(Some((name.to_owned(), text.trim().to_owned()))),
            None if rest.is_empty() => Self::Chain(None),
            None => Self::Wrong("/chain, or /chain <name> <what is asked of it>"),
        }
    }

    fn approve(words: &[&str]) -> Self {
        let allowing = |word: &str| Verdict::parse(word).filter(|word| *word != Verdict::Deny);
        let (id, verdict) = match words {
            [] => (None, Some(Verdict::Once)),
            [word] => match allowing(word) {
                Some(verdict) => (None, Some(verdict)),
                None => (Some(*word), Some(Verdict::Once)),
            },
            [id, word] => (Some(*id), allowing(word)),
            _ => (None, None),
        };
        verdict.map_or(Self::Wrong(APPROVE), |verdict| Self::Decide {
            id: id.map(str::to_owned),
            verdict,
        })
    }

    fn show(words: &[&str]) -> Self {
        match words {
            ["model"] => Self::Model(ModelWish::Show),
            ["channel"] => Self::Status,
            ["agents"] => Self::List(Listed::Agents),
            _ => Self::Wrong("/show model, /show channel, or /show agents"),
        }
    }

    fn list(words: &[&str]) -> Self {
        match words {
            ["agents"] => Self::List(Listed::Agents),
            ["models"] => Self::List(Listed::Models),
            ["channels"] => Self::List(Listed::Channels),
            ["skills"] => Self::List(Listed::Skills),
            _ => Self::Wrong("/list agents, /list models, /list channels, or /list skills"),
        }
    }

    /// Whether everybody in a conversation of this kind may say it. What changes the conversation
    /// for all, or tells of the tenant, is not for a whole group.
    #[must_use]
    pub const fn is_for(&self, kind: SessionKind) -> bool {
        match (self, kind) {
            (Self::Help | Self::Status | Self::Stop | Self::Wrong(_), _) => true,
            // Who in a group may is looked at when it is carried out.
            (Self::Decide { .. }, _) => true,
            (_, SessionKind::Group | SessionKind::Topic) => false,
            _ => true,
        }
    }
}

const APPROVE: &str = "/approve, /approve <id>, or /approve <id> always";
/// What follows a command's name.
fn after_name(said: &str) -> &str {
    said.trim_start_matches(|c: char| !c.is_whitespace()).trim()
}

/// Whether what is left begins with a dial that has no level.
fn begins_with(said: &str, dial: Dial) -> bool {
    let first = said.split_whitespace().next().and_then(|word| word.strip_prefix('/'));
    first.and_then(Dial::named) == Some(dial)
}

const SWITCH: &str = "/switch model to <provider>:<model>";

impl Body {
    /// The command that this message is, if it is one. Only what a person or a program says for
    /// themselves can be: no event of the mesh, nothing that was overheard or is of a history.
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
        let none = Dials::default();
        let model = |name: &str| Command::Model(ModelWish::Use(name.into()));
        let decide =
            |id: Option<&str>, verdict| Command::Decide { id: id.map(str::to_owned), verdict };
        for (text, command) in [
            ("/help", Command::Help),
            (" /Status@our_bot\n", Command::Status),
            ("/reset", Command::New),
            ("/stop", Command::Stop),
            ("/model", Command::Model(ModelWish::Show)),
            ("/model default", Command::Model(ModelWish::Default)),
            ("/model openai:gpt-5", model("openai:gpt-5")),
            ("/switch model to a:b", model("a:b")),
            ("/timezone", Command::TimeZone(ZoneWish::Show)),
            ("/timezone default", Command::TimeZone(ZoneWish::Default)),
            ("/Timezone Europe/Oslo", Command::TimeZone(ZoneWish::Use("Europe/Oslo".into()))),
            ("/show agents", Command::List(Listed::Agents)),
            ("/list models", Command::List(Listed::Models)),
            ("/list skills", Command::List(Listed::Skills)),
            ("/chain", Command::Chain(None)),
            (
                "/chain build  a house\n\nwith a door",
                Command::Chain(Some(("build".into(), "a house\n\nwith a door".into()))),
            ),
            ("/think", Command::Show(Dial::Think)),
            ("/Verbose@our_bot", Command::Show(Dial::Verbose)),
            ("/think high", Command::Turn(Dials { thinking: Some(Thinking::High), ..none })),
            (
                "/think high /elevated ask",
                Command::Turn(Dials {
                    thinking: Some(Thinking::High),
                    elevated: Some(Elevated::Ask),
                    ..none
                }),
            ),
            ("/compact", Command::Compact(String::new())),
            ("/compact keep  the\nnames", Command::Compact("keep  the\nnames".into())),
            ("/approve", decide(None, Verdict::Once)),
            ("/approve Always", decide(None, Verdict::Always)),
            ("/approve 1a2b3c4d", decide(Some("1a2b3c4d"), Verdict::Once)),
            ("/Approve@our_bot 1a2b3c4d always", decide(Some("1a2b3c4d"), Verdict::Always)),
            ("/deny", decide(None, Verdict::Deny)),
            ("/deny 1a2b3c4d", decide(Some("1a2b3c4d"), Verdict::Deny)),
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
            "/switch channel to x",
            "/model a b",
            "/timezone New York",
            "/think hard",
            "/think about it",
            "/think about it /verbose on",
            "/reasoning full",
            "/chain build",
            "/approve a b",
            "/approve a deny",
            "/deny a b",
        ] {
            assert!(matches!(Command::parse(text), Some(Command::Wrong(_))), "{text}");
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
            assert!(!Command::New.is_for(kind) && !Command::List(Listed::Agents).is_for(kind));
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
