//! Accepting messages from channels, as received by a bridge.

use holdfast_directory::TenantState;
use holdfast_kit::trace;
use holdfast_proto::gateway::v1 as pb;
use holdfast_session::NewMessage;
use holdfast_types::{
    AccountId, AgentName, Attachment, Body, Peer, PeerKind, ReplyTo, Sender, Source, Target,
    TenantId,
};

use super::{
    Ingest, Taken,
    attached::{Brought, brought},
    debounce, idem_key, of_sender, text,
};
use crate::{
    Error,
    routing::{self, Inbound},
};

/// Maximum length of an id or name from a platform, in bytes.
const LONGEST_NAME: usize = 256;
/// Maximum length of the quoted message that is replied to, and of a file's reference, in bytes.
const LONGEST_QUOTE: usize = 2_000;
/// Maximum number of files of a message; more are ignored.
pub(super) const MOST_FILES: usize = 32;

/// Message from a channel, validated.
#[derive(Debug, Clone)]
pub struct Arrival {
    account: AccountId,
    idem_key: String,
    inbound: Inbound,
    body: Body,
    files: Vec<Brought>,
    target: Target,
}

impl Arrival {
    /// Validates a request of a bridge.
    ///
    /// # Errors
    ///
    /// If a field is missing that routing or the reply needs, or the text is too long.
    pub fn new(request: pb::AcceptRequest, text_limit: usize) -> Result<Self, Error> {
        let account = request.account_id.parse()?;
        if request.idempotency_key.is_empty() {
            return Err(Error::Missing("idempotency_key"));
        }
        let channel = named("channel", &request.channel)?.to_lowercase();
        let chat = named("reply_chat", &request.reply_chat)?;
        let peer = Peer {
            kind: peer_kind("peer_kind", &request.peer_kind)?,
            id: named("peer_id", &request.peer_id)?,
        };
        let parent = match text::given(&request.parent_peer_id, LONGEST_NAME) {
            None => None,
            Some(id) => {
                let kind = peer_kind("parent_peer_kind", &request.parent_peer_kind)?;
                Some(Peer { kind, id })
            }
        };
        let thread = text::given(&request.thread, LONGEST_NAME);
        let sender = text::given(&request.sender_id, LONGEST_NAME);
        let body = body(&request, text_limit)?;
        let files = brought(request.attachments);
        Ok(Self {
            account,
            idem_key: idem_key(text::clean(&request.idempotency_key).into_owned())?,
            inbound: Inbound {
                channel: channel.clone(),
                account: text::short(&request.account, LONGEST_NAME),
                peer,
                parent,
                thread,
                guild: text::given(&request.guild, LONGEST_NAME),
                team: text::given(&request.team, LONGEST_NAME),
                sender,
                text: body.text.clone(),
            },
            body,
            files,
            target: Target {
                channel,
                account,
                chat,
                thread: text::given(&request.reply_thread, LONGEST_NAME),
                reply_to: text::given(&request.reply_to, LONGEST_NAME),
            },
        })
    }
}

impl Ingest {
    /// Accepts a message from a channel; also returns the name of the agent that will answer.
    ///
    /// # Errors
    ///
    /// If the message is not valid, or cannot be stored now.
    pub async fn accept_arrival(
        &self,
        tenant: TenantId,
        request: pb::AcceptRequest,
    ) -> Result<(Taken, AgentName), Error> {
        let Arrival { account, idem_key, inbound, mut body, files, target } =
            Arrival::new(request, self.text_limit)?;
        // API keys of a suspended tenant stop working; a bridge may not know of the suspension yet.
        let state = self.directory.tenant(&tenant.to_string()).await?.state;
        if state == TenantState::Suspended {
            return Err(holdfast_directory::Error::Suspended.into());
        }
        let routing = self.directory.routing(tenant).await?;
        let routed = routing::route(&routing, &inbound)?;
        let agent = routed.agent;
        self.keep(tenant, agent.id, &mut body, files).await?;
        let message = NewMessage {
            key: routed.key,
            agent: agent.id,
            label: None,
            source: Source::Channel(account),
            idem_key,
            body: Body { tools: routed.tools, route: routed.by_model.map(Box::new), ..body },
            target: Some(target),
            mode: agent.settings.queue_mode,
            debounce: debounce(&agent),
            trace: trace::current(),
        };
        Ok((self.store(tenant, message).await?, agent.name))
    }
}

fn body(request: &pb::AcceptRequest, text_limit: usize) -> Result<Body, Error> {
    let files = request.attachments.iter().take(MOST_FILES);
    let attachments: Vec<Attachment> = files
        .map(|file| Attachment {
            kind: text::short(&file.kind, LONGEST_NAME),
            reference: text::short(&file.reference, LONGEST_QUOTE),
            name: text::short(&file.name, LONGEST_NAME),
            file: None,
        })
        .collect();
    // A user's message is not refused for a stray NUL that the platform let through.
    let said = match text::message(&request.text.replace('\0', ""), text_limit) {
        // A message may consist of a photo only.
        Err(Error::Empty) if !attachments.is_empty() => String::new(),
        said => said?,
    };
    let sender = text::given(&request.sender_id, LONGEST_NAME);
    let answered = text::given(&request.reply_to_message_id, LONGEST_NAME);
    let channel = request.channel.trim().to_lowercase();
    let author = of_sender(&channel, sender.as_deref(), request.sender_listed);
    Ok(Body {
        author: Some(author),
        text: said,
        sender: sender
            .map(|id| Sender { id, name: text::short(&request.sender_name, LONGEST_NAME) }),
        message_id: text::given(&request.platform_message_id, LONGEST_NAME),
        reply_to: answered.map(|message_id| ReplyTo {
            message_id,
            text: text::short(&request.reply_to_text, LONGEST_QUOTE),
        }),
        attachments,
        silent: request.silent,
        ..Body::default()
    })
}

fn named(field: &'static str, text: &str) -> Result<String, Error> {
    text::given(text, LONGEST_NAME).ok_or(Error::Missing(field))
}

fn peer_kind(field: &'static str, word: &str) -> Result<PeerKind, Error> {
    match word {
        "direct" => Ok(PeerKind::Direct),
        "group" => Ok(PeerKind::Group),
        "channel" => Ok(PeerKind::Channel),
        other => Err(Error::Unknown {
            field,
            given: other.chars().take(80).collect(),
            wanted: "direct, group or channel",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> pb::AcceptRequest {
        pb::AcceptRequest {
            account_id: AccountId::generate().to_string(),
            channel: "Telegram".into(),
            account: "default".into(),
            idempotency_key: "update-7".into(),
            peer_kind: "direct".into(),
            peer_id: "42".into(),
            sender_id: "42".into(),
            sender_name: "Anna\u{202e}\u{7}".into(),
            text: "hi\0 there".into(),
            reply_chat: "42".into(),
            ..pb::AcceptRequest::default()
        }
    }

    #[test]
    fn what_a_platform_let_through_is_cleaned_and_not_refused() {
        let arrival = Arrival::new(request(), 100).unwrap();

        assert_eq!(arrival.body.text, "hi there");
        assert_eq!(arrival.body.sender.unwrap().name, "Anna\u{202e}");
        assert_eq!(arrival.target.channel, "telegram");
        assert_eq!(arrival.target.thread, None);
    }

    #[test]
    fn a_file_says_enough_by_itself_and_nothing_says_too_little() {
        let file = pb::MessageAttachment { kind: "photo".into(), ..Default::default() };
        let photo = pb::AcceptRequest { text: String::new(), attachments: vec![file], ..request() };
        let nothing = pb::AcceptRequest { text: " ".into(), ..request() };

        assert_eq!(Arrival::new(photo, 100).unwrap().body.attachments.len(), 1);
        assert!(matches!(Arrival::new(nothing, 100), Err(Error::Empty)));
    }

    #[test]
    fn what_routing_or_the_answer_needs_must_be_there() {
        for (wrong, told) in [
            (pb::AcceptRequest { peer_id: String::new(), ..request() }, "`peer_id`"),
            (pb::AcceptRequest { reply_chat: String::new(), ..request() }, "`reply_chat`"),
            (pb::AcceptRequest { peer_kind: "dm".into(), ..request() }, "direct, group or channel"),
            (pb::AcceptRequest { account_id: "7".into(), ..request() }, "`acc_`"),
            (
                pb::AcceptRequest { idempotency_key: String::new(), ..request() },
                "`idempotency_key`",
            ),
            (pb::AcceptRequest { text: "x".repeat(101), ..request() }, "101 bytes"),
        ] {
            let error = Arrival::new(wrong, 100).unwrap_err().to_string();

            assert!(error.contains(told), "{error}");
        }
    }
}
