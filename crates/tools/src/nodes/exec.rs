//! The `exec` action of `nodes`: runs a command on a user's machine.

use std::time::Duration;

use holdfast_types::{MOST_NODE_COMMAND, NodeCommand, NodeRan, NodeReached, NodeSaid, NodeWish};
use tokio::time::{Instant, sleep};

use super::{AWAY, HERE, NodeLine, Nodes, NodesInput, NodesTool, not_connected, source, tell};
use crate::{Approval, Call, ToolError, untrusted};

/// Default and maximum timeout of a command, in seconds.
const USUAL: u32 = 60;
const LONGEST: u32 = 120;

/// Time that a node waits for a command's end before it reports the state.
const WAIT: Duration = Duration::from_secs(5);

/// Additional time for a response; longer than the gateway gives the node.
const SLACK: Duration = Duration::from_secs(12);

/// Time that a disconnected node has to reconnect.
const AWAY_FOR: Duration = Duration::from_secs(15);

/// Time after its timeout in which a command must end: it is asked to end, killed, and reported.
const AFTER: Duration = Duration::from_secs(20);

/// Interval between requests to a disconnected node.
const AGAIN: Duration = Duration::from_millis(500);

/// Timeout of a call: the longest command, and delays of the connection.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(180);

/// Maximum length of the output that the model gets, in characters.
const MOST_TEXT: usize = 60_000;

/// Outcome of a command.
enum Followed {
    Ended(NodeRan),
    /// The outcome is unknown, for this reason; with the last reported state.
    Lost(&'static str, Option<NodeRan>),
}

impl<N: Nodes> NodesTool<N> {
    /// No approval is requested for a command that cannot run; denied commands are never run.
    pub(super) async fn approval_of_exec(
        &self,
        call: &Call,
        input: &NodesInput,
    ) -> Result<Approval, ToolError> {
        let (node, command) = match self.understand(call, input).await {
            Ok(understood) => understood,
            Err(ToolError::Tell(why)) => return Ok(Approval::Deny(why)),
            Err(broken @ ToolError::Broken(_)) => return Err(broken),
        };
        match self.0.ask(call, node.id, &NodeWish::Here, HERE).await {
            NodeReached::Nobody => return Ok(Approval::Deny(not_connected(&node))),
            NodeReached::Away => return Ok(Approval::Deny(AWAY.to_owned())),
            NodeReached::Silent | NodeReached::Said(_) => {}
        }
        let NodeCommand { script, workdir, timeout_s, .. } = command;
        let place = if workdir.is_empty() { String::new() } else { format!(" in `{workdir}`") };
        Ok(Approval::Ask {
            // By the id: another machine with the same name needs its own approval.
            subject: format!(
                "on the node {} ({}), in `{workdir}`, for {timeout_s} s at most:\n{script}",
                node.name, node.id
            ),
            summary: format!("run on {}{place} `{script}`", node.name),
            // "Always" applies to exactly this command.
            pattern: None,
        })
    }

    pub(super) async fn exec(&self, call: &Call, input: &NodesInput) -> Result<String, ToolError> {
        let (node, command) = self.understand(call, input).await?;
        let until = Instant::now() + Duration::from_secs(command.timeout_s.into()) + AFTER;
        let wish = NodeWish::Run { command, wait_ms: millis(WAIT) };
        let last = match self.0.ask(call, node.id, &wish, WAIT + SLACK).await {
            NodeReached::Nobody => return tell(not_connected(&node)),
            NodeReached::Away => return tell(AWAY.to_owned()),
            NodeReached::Said(NodeSaid::Refused(why)) => {
                let why = untrusted(&call.key, &source(&node), &why, MOST_TEXT);
                return tell(format!("`{}` does not do this; nothing was run.\n{why}", node.name));
            }
            NodeReached::Said(NodeSaid::Ran(ran)) if ran.ended.is_some() => {
                return Ok(told(call, &node, &ran));
            }
            NodeReached::Said(NodeSaid::Ran(ran)) => Some(ran),
            // The command may have started: from here on, only ask for its state.
            NodeReached::Silent | NodeReached::Said(_) => None,
        };
        match self.follow(call, &node, last, until).await {
            Followed::Ended(ran) => Ok(told(call, &node, &ran)),
            Followed::Lost(why, seen) => tell(unknown(call, &node, why, seen.as_ref())),
        }
    }

    /// Finds the outcome of a command that a crashed runner started.
    pub(super) async fn recall_exec(&self, call: &Call, input: &NodesInput) -> Option<String> {
        let (node, command) = self.understand(call, input).await.ok()?;
        let until = Instant::now() + Duration::from_secs(command.timeout_s.into()) + AFTER;
        match self.follow(call, &node, None, until).await {
            Followed::Ended(ran) => Some(told(call, &node, &ran)),
            Followed::Lost(..) => None,
        }
    }

    /// Asks for a command's state until it has ended, or the outcome is lost.
    async fn follow(
        &self,
        call: &Call,
        node: &NodeLine,
        mut last: Option<NodeRan>,
        until: Instant,
    ) -> Followed {
        let wish = NodeWish::Recall { key: call.key.clone(), wait_ms: millis(WAIT) };
        let mut seen = Instant::now();
        while Instant::now() < until {
            match self.0.ask(call, node.id, &wish, WAIT + SLACK).await {
                NodeReached::Said(NodeSaid::Ran(ran)) if ran.ended.is_some() => {
                    return Followed::Ended(ran);
                }
                NodeReached::Said(NodeSaid::Ran(ran)) => {
                    last = Some(ran);
                    seen = Instant::now();
                }
                NodeReached::Said(NodeSaid::NotKnown) => {
                    return Followed::Lost("the node knows nothing of it any more", last);
                }
                NodeReached::Nobody
                | NodeReached::Away
                | NodeReached::Silent
                | NodeReached::Said(_) => {
                    if seen.elapsed() >= AWAY_FOR {
                        return Followed::Lost("the connection to the node is lost", last);
                    }
                    sleep(AGAIN).await;
                }
            }
        }
        Followed::Lost("it did not end in its time", last)
    }

    /// Finds the node, and checks the command.
    async fn understand(
        &self,
        call: &Call,
        input: &NodesInput,
    ) -> Result<(NodeLine, NodeCommand), ToolError> {
        let script = input.command.as_deref().unwrap_or_default();
        if script.trim().is_empty() {
            return tell("`command` is empty: say what to run".to_owned());
        }
        if script.len() > MOST_NODE_COMMAND {
            let got = script.len();
            return tell(format!("`command` is {got} bytes, and {MOST_NODE_COMMAND} are the most"));
        }
        let timeout_s = input.timeout.unwrap_or(USUAL);
        if !(1..=LONGEST).contains(&timeout_s) {
            return tell(format!("`timeout` is {timeout_s}: give 1 to {LONGEST} seconds"));
        }
        let node = self.find(call, input.node.as_deref()).await?;
        let workdir = input.workdir.clone().unwrap_or_default();
        let (key, script) = (call.key.clone(), script.to_owned());
        Ok((node, NodeCommand { key, script, workdir, timeout_s }))
    }
}

fn told(call: &Call, node: &NodeLine, ran: &NodeRan) -> String {
    let how = ran.ended.as_deref().unwrap_or("it runs");
    let seconds = Duration::from_millis(ran.took_ms).as_secs_f64();
    let text = format!("{how} after {seconds:.1} s\n{}", written(ran));
    untrusted(&call.key, &source(node), &text, MOST_TEXT)
}

fn unknown(call: &Call, node: &NodeLine, why: &str, seen: Option<&NodeRan>) -> String {
    let mut text = format!(
        "the outcome of this command is unknown: it was given to `{}`, and then {why}. It is not \
         given again by itself: look what it did before you do",
        node.name
    );
    if let Some(ran) = seen {
        text.push_str(". What it had written until then:\n");
        text.push_str(&untrusted(&call.key, &source(node), &written(ran), MOST_TEXT));
    }
    text
}

fn written(ran: &NodeRan) -> String {
    let mut text = match ran.skipped {
        0 => String::new(),
        skipped => format!("[{skipped} bytes of its output are not shown]\n"),
    };
    text.push_str(&ran.out);
    if !ran.err.is_empty() {
        if !ran.out.is_empty() && !ran.out.ends_with('\n') {
            text.push('\n');
        }
        text.push_str("STDERR:\n");
        text.push_str(&ran.err);
    }
    if ran.out.is_empty() && ran.err.is_empty() {
        text.push_str("It wrote nothing.");
    }
    text
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
