//! Nodes: requests to people's own machines, and their answers.
//!
//! Runners send requests, gateways forward them, nodes answer. The three may have different
//! versions, so variants are only ever added.

use serde::{Deserialize, Serialize};

/// Maximum bytes that are sent of each output stream of a command.
pub const MAX_NODE_OUTPUT_BYTES: usize = 30_000;

/// Maximum length of a node's command, in bytes.
pub const MAX_NODE_COMMAND_BYTES: usize = 16_000;

/// Request to a node, or to the gateway that holds its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRequest {
    /// Whether the node is connected. Answered by its gateway.
    Here,
    /// The node's directory entry has changed: the gateway checks whether the connection is still
    /// allowed.
    Look,
    /// Measures the round trip to the node.
    Ping,
    /// Runs a command, once for the same key.
    Run {
        command: NodeCommand,
        /// How long to wait for the command's end before its state is returned, in milliseconds.
        wait_ms: u64,
    },
    /// Asks for the state of the command with this key. Starts nothing.
    Recall {
        key: String,
        /// How long to wait for the command's end, in milliseconds.
        wait_ms: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCommand {
    /// Idempotency key: the same for every request of one call's command.
    pub key: String,
    pub script: String,
    /// Working directory, within the folder that the node offers.
    pub workdir: String,
    /// Time limit in seconds.
    pub timeout_s: u32,
    /// Set when the command is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<SignedCommand>,
}

/// A command as its sender signed it; both fields are bytes in base64. The gateway passes them on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedCommand {
    /// The command with the node and the tenant that it is for, as protobuf.
    pub command: String,
    pub signature: String,
}

/// Outcome of a request to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeRequestOutcome {
    /// No gateway holds a connection: the request was certainly not delivered.
    NotConnected,
    /// The message bus is unavailable: the request was certainly not delivered.
    BusUnavailable,
    /// No answer: the request may have been delivered.
    NoAnswer,
    Answered(NodeReply),
}

/// Answer of a node, or of the gateway that holds its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReply {
    Here {
        /// Start of the connection, as a text.
        since: String,
    },
    Pong {
        /// Round-trip time in milliseconds.
        millis: u64,
    },
    Ran(NodeCommandState),
    /// The node refuses, with a reason; nothing was started.
    Refused(String),
    /// The node does not know the command.
    NotKnown,
    /// The connection ended before the node answered.
    Gone,
}

/// State of a command on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCommandState {
    /// Text such as `exited with code 0`; `None` while the command runs.
    pub ended: Option<String>,
    /// Newest part of the standard output.
    pub out: String,
    /// Newest part of the standard error.
    pub err: String,
    /// Number of bytes of both streams that are left out.
    pub skipped: u64,
    /// Running time so far, in milliseconds.
    pub took_ms: u64,
}

impl NodeCommandState {
    /// Returns the state with each stream cut to [`MAX_NODE_OUTPUT_BYTES`] bytes: a node is not trusted
    /// to do so.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        for stream in [&mut self.out, &mut self.err] {
            let excess = stream.len().saturating_sub(MAX_NODE_OUTPUT_BYTES);
            if excess > 0 {
                let from = stream.ceil_char_boundary(excess);
                self.skipped = self.skipped.saturating_add(u64::try_from(from).unwrap_or(u64::MAX));
                stream.drain(..from);
            }
        }
        self.ended = self.ended.map(|how| how.chars().take(200).collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_output_the_end_is_kept_and_the_rest_is_counted() {
        let out = format!("a{}", "語".repeat(MAX_NODE_OUTPUT_BYTES / 3));

        let cut =
            NodeCommandState { out, err: "e".into(), skipped: 5, ..NodeCommandState::default() }
                .truncated();

        assert_eq!(cut.out.len(), MAX_NODE_OUTPUT_BYTES);
        assert!(cut.out.starts_with('語') && cut.err == "e");
        assert_eq!(cut.skipped, 6);
    }

    #[test]
    fn what_is_asked_and_answered_travels() {
        let command = NodeCommand {
            key: "k".into(),
            script: "ls".into(),
            workdir: "".into(),
            timeout_s: 9,
            signed: Some(SignedCommand { command: "Yw==".into(), signature: "cw==".into() }),
        };
        let wish = NodeRequest::Run { command, wait_ms: 1 };
        let said = NodeReply::Ran(NodeCommandState {
            ended: Some("x".into()),
            ..NodeCommandState::default()
        });

        let wish_again: NodeRequest =
            serde_json::from_str(&serde_json::to_string(&wish).unwrap()).unwrap();
        let said_again: NodeReply =
            serde_json::from_str(&serde_json::to_string(&said).unwrap()).unwrap();

        assert_eq!((wish_again, said_again), (wish, said));
    }
}
