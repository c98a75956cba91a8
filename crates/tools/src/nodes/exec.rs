//! The `exec` action of `nodes`: runs a command on a user's machine.

use std::time::Duration;

use holdfast_types::{
    MAX_NODE_COMMAND_BYTES, NodeCommand, NodeCommandState, NodeReply, NodeRequest,
    NodeRequestOutcome,
};
use tokio::time::{Instant, sleep};

use super::{
    CONNECTION_CHECK_TIMEOUT, NodeLine, Nodes, NodesInput, NodesTool, UNREACHABLE_MESSAGE,
    not_connected_message, source, tell,
};
use crate::{Approval, Call, SubjectText, ToolError, untrusted};

/// Default and maximum timeout of a command, in seconds.
const DEFAULT_TIMEOUT_SECS: u32 = 60;
const MAX_TIMEOUT_SECS: u32 = 120;

/// Time that a node waits for a command's end before it reports the state.
const RESPONSE_WAIT: Duration = Duration::from_secs(5);

/// Additional time for a response; longer than the gateway gives the node.
const RESPONSE_SLACK: Duration = Duration::from_secs(12);

/// Time that a disconnected node has to reconnect.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after its timeout in which a command must end: it is asked to end, killed, and reported.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between requests to a disconnected node.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of a call: the longest command, and delays of the connection.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(180);

/// Maximum length of the output that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 60_000;

/// Outcome of a command.
enum CommandOutcome {
    Ended(NodeCommandState),
    /// The outcome is unknown, for this reason; with the last reported state.
    Lost(&'static str, Option<NodeCommandState>),
}

impl<N: Nodes> NodesTool<N> {
    /// No approval is requested for a command that cannot run; denied commands are never run.
    pub(super) async fn approval_of_exec(
        &self,
        call: &Call,
        input: &NodesInput,
    ) -> Result<Approval, ToolError> {
        let (node, command) = match self.parse_command(call, input).await {
            Ok(understood) => understood,
            Err(ToolError::Tell(why)) => return Ok(Approval::Deny(why)),
            Err(broken @ ToolError::Broken(_)) => return Err(broken),
        };
        match self.0.ask(call, node.id, &NodeRequest::Here, CONNECTION_CHECK_TIMEOUT).await {
            NodeRequestOutcome::NotConnected => {
                return Ok(Approval::Deny(not_connected_message(&node)));
            }
            NodeRequestOutcome::BusUnavailable => {
                return Ok(Approval::Deny(UNREACHABLE_MESSAGE.to_owned()));
            }
            NodeRequestOutcome::NoAnswer | NodeRequestOutcome::Answered(_) => {}
        }
        let NodeCommand { script, workdir, timeout_s, .. } = command;
        let place = if workdir.is_empty() { String::new() } else { format!(" in `{workdir}`") };
        Ok(Approval::Ask {
            // By the id: another machine with the same name needs its own approval.
            subject: SubjectText::default()
                .with("node", &format!("{} ({})", node.name, node.id))
                .with("folder", &workdir)
                .with("seconds at most", &timeout_s.to_string())
                .with("command", &script)
                .into(),
            summary: format!("run on {}{place} `{script}`", node.name),
            // "Always" applies to exactly this command.
            pattern: None,
        })
    }

    pub(super) async fn exec(&self, call: &Call, input: &NodesInput) -> Result<String, ToolError> {
        let (node, command) = self.parse_command(call, input).await?;
        let until = Instant::now() + Duration::from_secs(command.timeout_s.into()) + END_TIMEOUT;
        let wish = NodeRequest::Run { command, wait_ms: millis(RESPONSE_WAIT) };
        let last = match self.0.ask(call, node.id, &wish, RESPONSE_WAIT + RESPONSE_SLACK).await {
            NodeRequestOutcome::NotConnected => return tell(not_connected_message(&node)),
            NodeRequestOutcome::BusUnavailable => return tell(UNREACHABLE_MESSAGE.to_owned()),
            NodeRequestOutcome::Answered(NodeReply::Refused(why)) => {
                let why = untrusted(&call.key, &source(&node), &why, MAX_SHOWN_CHARS);
                return tell(format!("`{}` does not do this; nothing was run.\n{why}", node.name));
            }
            NodeRequestOutcome::Answered(NodeReply::Ran(ran)) if ran.ended.is_some() => {
                return Ok(result_text(call, &node, &ran));
            }
            NodeRequestOutcome::Answered(NodeReply::Ran(ran)) => Some(ran),
            // The command may have started: from here on, only ask for its state.
            NodeRequestOutcome::NoAnswer | NodeRequestOutcome::Answered(_) => None,
        };
        match self.follow(call, &node, last, until).await {
            CommandOutcome::Ended(ran) => Ok(result_text(call, &node, &ran)),
            CommandOutcome::Lost(why, seen) => {
                tell(unknown_outcome_message(call, &node, why, seen.as_ref()))
            }
        }
    }

    /// Finds the outcome of a command that a crashed runner started.
    pub(super) async fn find_exec_outcome(
        &self,
        call: &Call,
        input: &NodesInput,
    ) -> Option<String> {
        let (node, command) = self.parse_command(call, input).await.ok()?;
        let until = Instant::now() + Duration::from_secs(command.timeout_s.into()) + END_TIMEOUT;
        match self.follow(call, &node, None, until).await {
            CommandOutcome::Ended(ran) => Some(result_text(call, &node, &ran)),
            CommandOutcome::Lost(..) => None,
        }
    }

    /// Asks for a command's state until it has ended, or the outcome is lost.
    async fn follow(
        &self,
        call: &Call,
        node: &NodeLine,
        mut last: Option<NodeCommandState>,
        until: Instant,
    ) -> CommandOutcome {
        let wish = NodeRequest::Recall { key: call.key.clone(), wait_ms: millis(RESPONSE_WAIT) };
        let mut seen = Instant::now();
        while Instant::now() < until {
            match self.0.ask(call, node.id, &wish, RESPONSE_WAIT + RESPONSE_SLACK).await {
                NodeRequestOutcome::Answered(NodeReply::Ran(ran)) if ran.ended.is_some() => {
                    return CommandOutcome::Ended(ran);
                }
                NodeRequestOutcome::Answered(NodeReply::Ran(ran)) => {
                    last = Some(ran);
                    seen = Instant::now();
                }
                NodeRequestOutcome::Answered(NodeReply::NotKnown) => {
                    return CommandOutcome::Lost("the node knows nothing of it any more", last);
                }
                NodeRequestOutcome::NotConnected
                | NodeRequestOutcome::BusUnavailable
                | NodeRequestOutcome::NoAnswer
                | NodeRequestOutcome::Answered(_) => {
                    if seen.elapsed() >= RECONNECT_TIMEOUT {
                        return CommandOutcome::Lost("the connection to the node is lost", last);
                    }
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
        CommandOutcome::Lost("it did not end in its time", last)
    }

    /// Finds the node, and checks the command.
    async fn parse_command(
        &self,
        call: &Call,
        input: &NodesInput,
    ) -> Result<(NodeLine, NodeCommand), ToolError> {
        let script = input.command.as_deref().unwrap_or_default();
        if script.trim().is_empty() {
            return tell("`command` is empty: say what to run".to_owned());
        }
        if script.len() > MAX_NODE_COMMAND_BYTES {
            let got = script.len();
            return tell(format!(
                "`command` is {got} bytes, and {MAX_NODE_COMMAND_BYTES} are the most"
            ));
        }
        let timeout_s = input.timeout.unwrap_or(DEFAULT_TIMEOUT_SECS);
        if !(1..=MAX_TIMEOUT_SECS).contains(&timeout_s) {
            return tell(format!("`timeout` is {timeout_s}: give 1 to {MAX_TIMEOUT_SECS} seconds"));
        }
        let node = self.find(call, input.node.as_deref()).await?;
        let workdir = input.workdir.clone().unwrap_or_default();
        let (key, script) = (call.key.clone(), script.to_owned());
        Ok((node, NodeCommand { key, script, workdir, timeout_s, signed: None }))
    }
}

fn result_text(call: &Call, node: &NodeLine, ran: &NodeCommandState) -> String {
    let how = ran.ended.as_deref().unwrap_or("it runs");
    let seconds = Duration::from_millis(ran.took_ms).as_secs_f64();
    let text = format!("{how} after {seconds:.1} s\n{}", output_text(ran));
    untrusted(&call.key, &source(node), &text, MAX_SHOWN_CHARS)
}

fn unknown_outcome_message(
    call: &Call,
    node: &NodeLine,
    why: &str,
    seen: Option<&NodeCommandState>,
) -> String {
    let mut text = format!(
        "the outcome of this command is unknown: it was given to `{}`, and then {why}. It is not \
         given again by itself: look what it did before you do",
        node.name
    );
    if let Some(ran) = seen {
        text.push_str(". What it had written until then:\n");
        text.push_str(&untrusted(&call.key, &source(node), &output_text(ran), MAX_SHOWN_CHARS));
    }
    text
}

fn output_text(ran: &NodeCommandState) -> String {
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
