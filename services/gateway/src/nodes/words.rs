//! Conversion between the protos of nodes and the bus's messages.

use holdfast_directory::NodeSelf;
use holdfast_proto::gateway::v1::{
    self as pb, AttachResponse, NodeAsk, attach_request, attach_response, node_answer, node_ask,
};
use holdfast_types::{NodeRan, NodeSaid, NodeWish};

/// Maximum length of a node's reason for a refusal, in characters.
const LONGEST_REASON: usize = 1_000;

/// Protocol version; a node must have the same.
const PROTOCOL: u32 = 1;

/// Reads a node's first message. The error is the reason why the node is refused.
pub(super) fn hello(said: Option<attach_request::Said>) -> Result<NodeSelf, String> {
    match said {
        Some(attach_request::Said::Hello(hello)) if hello.protocol == PROTOCOL => Ok(NodeSelf {
            platform: hello.platform,
            version: hello.version,
            commands: hello.commands,
        }),
        Some(attach_request::Said::Hello(hello)) => Err(format!(
            "the node speaks version {} of the contract, and the gateway {PROTOCOL}: update the \
             older one",
            hello.protocol
        )),
        Some(attach_request::Said::Answer(_)) | None => {
            Err("a node's first message is its `hello`".to_owned())
        }
    }
}

/// Converts a request for the node; `None` if the gateway itself answers it.
pub(super) fn ask(id: u64, wish: NodeWish) -> Option<AttachResponse> {
    let what = match wish {
        NodeWish::Here | NodeWish::Look => return None,
        NodeWish::Ping => node_ask::What::Ping(pb::NodePing {}),
        NodeWish::Run { command, wait_ms } => node_ask::What::Run(pb::NodeRun {
            key: command.key,
            script: command.script,
            workdir: command.workdir,
            timeout_seconds: command.timeout_s,
            wait_ms,
        }),
        NodeWish::Recall { key, wait_ms } => {
            node_ask::What::Recall(pb::NodeRecall { key, wait_ms })
        }
    };
    let ask = NodeAsk { id, what: Some(what) };
    Some(AttachResponse { asked: Some(attach_response::Asked::Ask(ask)) })
}

/// Converts a node's answer, cut to the maximum length.
pub(super) fn said(answer: node_answer::What, millis: u64) -> NodeSaid {
    match answer {
        node_answer::What::Pong(pb::NodePong {}) => NodeSaid::Pong { millis },
        node_answer::What::Ran(ran) => {
            let ended = Some(ran.ended).filter(|how| !how.is_empty());
            let (out, err) = (ran.out, ran.err);
            let (skipped, took_ms) = (ran.skipped, ran.took_ms);
            NodeSaid::Ran(NodeRan { ended, out, err, skipped, took_ms }.cut())
        }
        node_answer::What::Refused(why) => {
            NodeSaid::Refused(why.chars().take(LONGEST_REASON).collect())
        }
        node_answer::What::NotKnown(pb::NodeNotKnown {}) => NodeSaid::NotKnown,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::MOST_NODE_OUTPUT;

    use super::*;

    #[test]
    fn a_node_cannot_flood_the_mesh() {
        let ran = pb::NodeRan { out: "x".repeat(1_000_000), ..Default::default() };

        let NodeSaid::Ran(ran) = said(node_answer::What::Ran(ran), 0) else { panic!() };
        let NodeSaid::Refused(why) = said(node_answer::What::Refused("x".repeat(9_999)), 0) else {
            panic!()
        };

        assert_eq!((ran.out.len(), ran.skipped), (MOST_NODE_OUTPUT, 970_000));
        assert_eq!((ran.ended, why.len()), (None, LONGEST_REASON));
    }

    #[test]
    fn who_does_not_say_hello_first_is_told() {
        let of = |protocol| {
            let hello = pb::NodeHello { protocol, ..Default::default() };
            hello_of(Some(attach_request::Said::Hello(hello)))
        };
        assert!(of(1).is_ok());
        assert!(of(7).unwrap_err().contains("version 7"));
        assert!(hello_of(None).is_err());
        let answer = attach_request::Said::Answer(pb::NodeAnswer::default());
        assert!(hello_of(Some(answer)).is_err());
    }

    fn hello_of(said: Option<attach_request::Said>) -> Result<NodeSelf, String> {
        hello(said)
    }
}
