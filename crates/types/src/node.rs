//! Nodes: people's own machines. What one is asked, and what it answers.
//!
//! Runners ask, gateways pass on, nodes answer; the three may be of different versions, so names
//! here only grow.

use serde::{Deserialize, Serialize};

/// The most bytes of each stream of a command that travel.
pub const MOST_NODE_OUTPUT: usize = 30_000;

/// The longest command for a node, in bytes.
pub const MOST_NODE_COMMAND: usize = 16_000;

/// What a node is asked, or whoever holds its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeWish {
    /// Is it connected? Its gateway answers.
    Here,
    /// Something about it has changed in the directory: does its connection still count?
    Look,
    /// Does it answer, and how fast?
    Ping,
    /// Run a command, once for the same key.
    Run {
        /// The command.
        command: NodeCommand,
        /// How long to wait for its end before it is said how it stands.
        wait_ms: u64,
    },
    /// How does the command of this key stand? Nothing is begun.
    Recall {
        /// Its key.
        key: String,
        /// How long to wait for its end.
        wait_ms: u64,
    },
}

/// A command for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCommand {
    /// The same for the same command of the same call, however often it is asked for.
    pub key: String,
    /// What its shell runs.
    pub script: String,
    /// Where it starts, within the folder that the node offers.
    pub workdir: String,
    /// How long it may take, in seconds.
    pub timeout_s: u32,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReached {
    /// Nobody holds its connection: it was surely not asked.
    Nobody,
    /// Nobody can be asked now: the mesh's bus is away. It was surely not asked.
    Away,
    /// It may have been asked, and there is no answer.
    Silent,
    /// This was answered.
    Said(NodeSaid),
}

/// What a node answers, or whoever holds its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeSaid {
    /// It is connected.
    Here {
        /// Since when, as a text.
        since: String,
    },
    /// It answered.
    Pong {
        /// After so many milliseconds.
        millis: u64,
    },
    /// A command runs, or has ended.
    Ran(NodeRan),
    /// It does not do this, and why; nothing was begun.
    Refused(String),
    /// It knows of no such command.
    NotKnown,
    /// Its connection ended before it answered.
    Gone,
}

/// A command of a node's, as far as it went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRan {
    /// How it ended, in words, as `exited with code 0`; `None` while it runs.
    pub ended: Option<String>,
    /// What it wrote to its standard output, the newest of it.
    pub out: String,
    /// The same of its standard error.
    pub err: String,
    /// How many bytes of both are not shown.
    pub skipped: u64,
    /// For how long it has run, in milliseconds.
    pub took_ms: u64,
}

impl NodeRan {
    /// The same, with no more of each stream than may travel: a node is not trusted to cut.
    #[must_use]
    pub fn cut(mut self) -> Self {
        for stream in [&mut self.out, &mut self.err] {
            let excess = stream.len().saturating_sub(MOST_NODE_OUTPUT);
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
        let out = format!("a{}", "語".repeat(MOST_NODE_OUTPUT / 3));

        let cut = NodeRan { out, err: "e".into(), skipped: 5, ..NodeRan::default() }.cut();

        assert_eq!(cut.out.len(), MOST_NODE_OUTPUT);
        assert!(cut.out.starts_with('語') && cut.err == "e");
        assert_eq!(cut.skipped, 6);
    }

    #[test]
    fn what_is_asked_and_answered_travels() {
        let command =
            NodeCommand { key: "k".into(), script: "ls".into(), workdir: "".into(), timeout_s: 9 };
        let wish = NodeWish::Run { command, wait_ms: 1 };
        let said = NodeSaid::Ran(NodeRan { ended: Some("x".into()), ..NodeRan::default() });

        let wish_again: NodeWish =
            serde_json::from_str(&serde_json::to_string(&wish).unwrap()).unwrap();
        let said_again: NodeSaid =
            serde_json::from_str(&serde_json::to_string(&said).unwrap()).unwrap();

        assert_eq!((wish_again, said_again), (wish, said));
    }
}
