//! Conversion between the protos of nodes and the bus's messages.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_directory::NodeReport;
use holdfast_proto::gateway::v1::{
    self as pb, AttachResponse, NodeAsk, attach_request, attach_response, node_answer, node_ask,
};
use holdfast_types::{NodeCommandState, NodeReply, NodeRequest, SignedCommand};

/// Maximum length of a node's reason for a refusal, in characters.
const MAX_REASON_CHARS: usize = 1_000;

/// Protocol version; a node must have the same.
const PROTOCOL_VERSION: u32 = 1;

/// Reads a node's first message. The error is the reason why the node is refused.
pub(super) fn hello_of(said: Option<attach_request::Said>) -> Result<NodeReport, String> {
    match said {
        Some(attach_request::Said::Hello(hello)) if hello.protocol == PROTOCOL_VERSION => {
            Ok(NodeReport {
                platform: hello.platform,
                version: hello.version,
                commands: hello.commands,
            })
        }
        Some(attach_request::Said::Hello(hello)) => Err(format!(
            "the node speaks version {} of the contract, and the gateway {PROTOCOL_VERSION}: update the \
             older one",
            hello.protocol
        )),
        Some(attach_request::Said::Answer(_)) | None => {
            Err("a node's first message is its `hello`".to_owned())
        }
    }
}

/// Converts a request for the node; `None` if the gateway itself answers it.
pub(super) fn request_of(id: u64, wish: NodeRequest) -> Option<AttachResponse> {
    let what = match wish {
        NodeRequest::Here | NodeRequest::Look => return None,
        NodeRequest::Ping => node_ask::What::Ping(pb::NodePing {}),
        NodeRequest::Run { command, wait_ms } => node_ask::What::Run(pb::NodeRun {
            key: command.key,
            script: command.script,
            workdir: command.workdir,
            timeout_seconds: command.timeout_s,
            wait_ms,
            signed: command.signed.and_then(signed_command),
        }),
        NodeRequest::Recall { key, wait_ms } => {
            node_ask::What::Recall(pb::NodeRecall { key, wait_ms })
        }
    };
    let ask = NodeAsk { id, what: Some(what) };
    Some(AttachResponse { asked: Some(attach_response::Asked::Ask(ask)) })
}

/// Only the node reads and verifies it.
fn signed_command(signed: SignedCommand) -> Option<pb::SignedNodeCommand> {
    let command = BASE64_STANDARD.decode(signed.command).ok()?;
    let signature = BASE64_STANDARD.decode(signed.signature).ok()?;
    Some(pb::SignedNodeCommand { command, signature })
}

/// Converts a node's answer, cut to the maximum length.
pub(super) fn answer_of(answer: node_answer::What, millis: u64) -> NodeReply {
    match answer {
        node_answer::What::Pong(pb::NodePong {}) => NodeReply::Pong { millis },
        node_answer::What::Ran(ran) => {
            let ended = Some(ran.ended).filter(|how| !how.is_empty());
            let (out, err) = (ran.out, ran.err);
            let (skipped, took_ms) = (ran.skipped, ran.took_ms);
            NodeReply::Ran(NodeCommandState { ended, out, err, skipped, took_ms }.truncated())
        }
        node_answer::What::Refused(why) => {
            NodeReply::Refused(why.chars().take(MAX_REASON_CHARS).collect())
        }
        node_answer::What::NotKnown(pb::NodeNotKnown {}) => NodeReply::NotKnown,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::MAX_NODE_OUTPUT_BYTES;

    use super::*;

    #[test]
    fn a_node_cannot_flood_the_mesh() {
        let ran = pb::NodeRan { out: "x".repeat(1_000_000), ..Default::default() };

        let NodeReply::Ran(ran) = answer_of(node_answer::What::Ran(ran), 0) else { panic!() };
        let NodeReply::Refused(why) = answer_of(node_answer::What::Refused("x".repeat(9_999)), 0)
        else {
            panic!()
        };

        assert_eq!((ran.out.len(), ran.skipped), (MAX_NODE_OUTPUT_BYTES, 970_000));
        assert_eq!((ran.ended, why.len()), (None, MAX_REASON_CHARS));
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
}
