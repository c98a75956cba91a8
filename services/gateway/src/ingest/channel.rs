//! Accepting messages from channels, as received by a bridge.

use holdfast_directory::{RoutedAgent, Tenant, TenantState};
use holdfast_kit::trace;
use holdfast_proto::gateway::v1::{self as pb, SenderAssurance};
use holdfast_session::NewMessage;
use holdfast_types::{
    AccountId, AgentName, Attachment, Author, Body, Command, MessageOptions, Peer, PeerKind,
    ReplyTo, Sender, SessionKey, Source, Target, TenantId, UNVERIFIED_PEER_PREFIX, account_name,
    is_reserved_peer,
};
use sha2::{Digest as _, Sha256};

use super::{
    AcceptedMessage, Destination, Ingest,
    attachments::{AttachedFile, storable_files},
    author::set_person,
    debounce, idempotency_key, of_sender, text,
};
use crate::{
    Error,
    routing::{self, RoutingInput},
};

/// Maximum length of an id or name from a platform, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Maximum length of the quoted message that is replied to, and of a file's reference, in bytes.
const MAX_QUOTE_BYTES: usize = 2_000;
/// Maximum number of files of a message; more are ignored.
pub(super) const MAX_FILES: usize = 32;

/// Message from a channel, validated.
#[derive(Debug, Clone)]
pub struct ChannelMessage {
    account: AccountId,
    idem_key: String,
    inbound: RoutingInput,
    body: Body,
    files: Vec<AttachedFile>,
    target: Target,
}

impl ChannelMessage {
    /// Validates a request of a bridge.
    ///
    /// # Errors
    ///
    /// If a field is missing that routing or the reply needs, or the text is too long.
    pub fn new(request: pb::AcceptRequest, text_limit: usize) -> Result<Self, Error> {
        let account = request.account_id.parse()?;
        if request.idempotency_key.is_empty() {
            return Err(Error::MissingField("idempotency_key"));
        }
        let channel = required_text("channel", &request.channel)?.to_lowercase();
        let chat = required_text("reply_chat", &request.reply_chat)?;
        let assurance = assurance(&request);
        let mut peer = Peer {
            kind: peer_kind("peer_kind", &request.peer_kind)?,
            id: required_text("peer_id", &request.peer_id)?,
        };
        let parent = match text::non_empty(&request.parent_peer_id, MAX_NAME_BYTES) {
            None => None,
            Some(id) => {
                let kind = peer_kind("parent_peer_kind", &request.parent_peer_kind)?;
                Some(Peer { kind, id })
            }
        };
        let thread = text::non_empty(&request.thread, MAX_NAME_BYTES);
        let sender = text::non_empty(&request.sender_id, MAX_NAME_BYTES);
        let direct = (peer.kind == PeerKind::Direct).then_some(&peer.id);
        if sender.iter().chain(direct).any(|id| is_reserved_peer(id)) {
            return Err(Error::ReservedSender);
        }
        let sender = sender.map(|id| sender_id(id, assurance));
        if peer.kind == PeerKind::Direct {
            peer.id = sender_id(peer.id, assurance);
        }
        let body = body(&request, text_limit)?;
        let files = storable_files(request.attachments);
        Ok(Self {
            account,
            idem_key: idempotency_key(text::clean(&request.idempotency_key).into_owned())?,
            inbound: RoutingInput {
                channel: channel.clone(),
                account: text::clean_and_cut(&request.account, MAX_NAME_BYTES),
                peer,
                parent,
                thread,
                guild: text::non_empty(&request.guild, MAX_NAME_BYTES),
                team: text::non_empty(&request.team, MAX_NAME_BYTES),
                sender,
                text: body.text.clone(),
            },
            body,
            files,
            target: Target {
                channel,
                account,
                chat,
                thread: text::non_empty(&request.reply_thread, MAX_NAME_BYTES),
                reply_to: text::non_empty(&request.reply_to, MAX_NAME_BYTES),
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
    pub async fn accept_channel_message(
        &self,
        tenant: &Tenant,
        request: pb::AcceptRequest,
    ) -> Result<(AcceptedMessage, AgentName), Error> {
        let ChannelMessage { account, idem_key, inbound, mut body, files, target } =
            ChannelMessage::new(request, self.text_limit)?;
        // API keys of a suspended tenant stop working; a bridge may not know of the suspension yet.
        if tenant.state != TenantState::Active {
            return Err(holdfast_directory::Error::TenantSuspended.into());
        }
        let tenant = tenant.id;
        let routing = self.directory.routing().get(tenant).await?;
        let routed = routing::route(&routing, &inbound)?;
        if let (Some((person, role)), Some(author)) =
            (routing::linked_author(&routing, &inbound), &mut body.author)
        {
            set_person(author, person, role);
        }
        let body = Body { tools: routed.tools, route: routed.by_model.map(Box::new), ..body };
        let source = Source::Channel(account);
        let mut arrival = Arrival { source, idem_key, inbound, body, files, target, signs: false };
        // A command about the account is for one of them.
        let is_for_one = matches!(arrival.body.command(), Some(Command::Link(_) | Command::Unlink));
        let also = if is_for_one { Vec::new() } else { routed.also };
        arrival.signs = !also.is_empty();
        let first_key = arrival.idem_key.clone();
        let accepted = self.accept_for(tenant, routed.agent.clone(), routed.key, &arrival).await?;
        // If one of these fails, the bridge sends the message again, and the others know it.
        for (agent, key) in also {
            arrival.idem_key = broadcast_key(&first_key, &agent);
            let further = self.accept_for(tenant, agent, key, &arrival).await?;
            self.notify_runners(&further);
        }
        Ok((accepted, routed.agent.name))
    }

    /// Stores the message in the session of one agent.
    async fn accept_for(
        &self,
        tenant: TenantId,
        agent: RoutedAgent,
        key: SessionKey,
        arrival: &Arrival,
    ) -> Result<AcceptedMessage, Error> {
        let Arrival { source, idem_key, inbound, body, files, target, signs } = arrival;
        let mut body = body.clone();
        let place = Destination { agent, key };
        self.store_files(tenant, &place, &mut body, files.clone()).await?;
        let Destination { agent, key } = place;
        let options = agent.settings.options_for(&inbound.channel, &account_name(&inbound.account));
        let signature = signs.then(|| agent.name.to_string());
        let message = NewMessage {
            key,
            agent: agent.id,
            label: None,
            source: source.clone(),
            idem_key: idem_key.clone(),
            mode: options.queue.mode.unwrap_or(agent.settings.queue_mode),
            debounce: debounce(&agent, &options),
            body: Body {
                options: MessageOptions { channel: options, signature, is_queue_chosen: false }
                    .boxed(),
                ..body
            },
            target: Some(target.clone()),
            trace: trace::current(),
        };
        self.store(tenant, message).await
    }
}

/// A message on its way to the agents that answer it.
struct Arrival {
    source: Source,
    idem_key: String,
    inbound: RoutingInput,
    body: Body,
    files: Vec<AttachedFile>,
    target: Target,
    /// Answers say whose they are.
    signs: bool,
}

/// Idempotency key of a message for a further agent.
fn broadcast_key(idem_key: &str, agent: &RoutedAgent) -> String {
    let digest = Sha256::digest(idem_key);
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("also:{}:{digest}", agent.id)
}

fn body(request: &pb::AcceptRequest, text_limit: usize) -> Result<Body, Error> {
    let files = request.attachments.iter().take(MAX_FILES);
    let attachments: Vec<Attachment> = files
        .map(|file| Attachment {
            kind: text::clean_and_cut(&file.kind, MAX_NAME_BYTES),
            reference: text::clean_and_cut(&file.reference, MAX_QUOTE_BYTES),
            name: text::clean_and_cut(&file.name, MAX_NAME_BYTES),
            file: None,
            transcription: None,
        })
        .collect();
    // A user's message is not refused for a stray NUL that the platform let through.
    let said = match text::message_text(&request.text.replace('\0', ""), text_limit) {
        // A message may consist of a photo only.
        Err(Error::Empty) if !attachments.is_empty() => String::new(),
        said => said?,
    };
    let sender = text::non_empty(&request.sender_id, MAX_NAME_BYTES);
    let answered = text::non_empty(&request.reply_to_message_id, MAX_NAME_BYTES);
    let channel = request.channel.trim().to_lowercase();
    let assurance = assurance(request);
    let author = author(&channel, sender.as_deref(), assurance, request.sender_listed);
    Ok(Body {
        author: Some(author),
        text: said,
        sender: sender.map(|id| Sender {
            id: sender_id(id, assurance),
            name: text::clean_and_cut(&request.sender_name, MAX_NAME_BYTES),
        }),
        message_id: text::non_empty(&request.platform_message_id, MAX_NAME_BYTES),
        sent_at: request.sent_at.map(|at| at.seconds),
        reply_to: answered.map(|message_id| {
            let text = text::clean_and_cut(&request.reply_to_text, MAX_QUOTE_BYTES);
            Box::new(ReplyTo { message_id, text })
        }),
        attachments,
        silent: request.silent,
        outside: request.has_text_of_others,
        ..Body::default()
    })
}

/// How sure the channel is of the sender. A value of a later version counts as the least.
fn assurance(request: &pb::AcceptRequest) -> SenderAssurance {
    request.sender_assurance.try_into().unwrap_or(SenderAssurance::None)
}

/// Whether the sender may be another than the id says.
const fn is_claimed(assurance: SenderAssurance) -> bool {
    matches!(assurance, SenderAssurance::Weak | SenderAssurance::None)
}

/// Id of a sender in conversations, bindings and links: one that is only claimed is another than
/// the one that it claims to be.
fn sender_id(id: String, assurance: SenderAssurance) -> String {
    if is_claimed(assurance) { format!("{UNVERIFIED_PEER_PREFIX}{id}") } else { id }
}

/// Author of a message. A sender who is not verified has no roles, whatever the lists say.
fn author(
    channel: &str,
    sender: Option<&str>,
    assurance: SenderAssurance,
    is_listed: bool,
) -> Author {
    match (sender, assurance) {
        (Some(sender), assurance) if is_claimed(assurance) => Author::unverified(channel, sender),
        (_, SenderAssurance::Unspecified | SenderAssurance::Verified) => {
            of_sender(channel, sender, is_listed)
        }
        _ => of_sender(channel, sender, false),
    }
}

fn required_text(field: &'static str, text: &str) -> Result<String, Error> {
    text::non_empty(text, MAX_NAME_BYTES).ok_or(Error::MissingField(field))
}

fn peer_kind(field: &'static str, word: &str) -> Result<PeerKind, Error> {
    match word {
        "direct" => Ok(PeerKind::Direct),
        "group" => Ok(PeerKind::Group),
        "channel" => Ok(PeerKind::Channel),
        other => Err(Error::UnknownValue {
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
        let arrival = ChannelMessage::new(request(), 100).unwrap();

        assert_eq!(arrival.body.text, "hi there");
        assert_eq!(arrival.body.sender.unwrap().name, "Anna\u{202e}");
        assert_eq!(arrival.target.channel, "telegram");
        assert_eq!(arrival.target.thread, None);
    }

    #[test]
    fn only_a_verified_sender_is_the_person_whom_the_lists_name() {
        let accepted = |assurance: i32| {
            let request = pb::AcceptRequest {
                channel: "email".into(),
                peer_id: "anna@x".into(),
                sender_id: "anna@x".into(),
                sender_listed: true,
                sender_assurance: assurance,
                ..request()
            };
            let ChannelMessage { inbound, body, target, .. } =
                ChannelMessage::new(request, 100).unwrap();
            assert_eq!(target.chat, "42");
            let author = body.author.unwrap();
            let ids = [inbound.sender.unwrap(), body.sender.unwrap().id, inbound.peer.id];
            assert!(ids.iter().all(|id| *id == ids[0]));
            let [id, ..] = ids;
            (id, author.id, author.roles.join(" "))
        };
        let as_claimed = ("anna@x".to_owned(), "email:anna@x".to_owned(), "member".to_owned());
        let unverified =
            ("unverified:anna@x".to_owned(), "email-unverified:anna@x".to_owned(), String::new());

        assert_eq!(accepted(SenderAssurance::Unspecified.into()), as_claimed);
        assert_eq!(accepted(SenderAssurance::Verified.into()), as_claimed);
        assert_eq!(accepted(SenderAssurance::Weak.into()), unverified);
        assert_eq!(accepted(SenderAssurance::None.into()), unverified);
        assert_eq!(accepted(99), unverified);
        let (id, author, roles) = accepted(SenderAssurance::Anonymous.into());
        assert_eq!([id.as_str(), &author, &roles], ["anna@x", "email:anna@x", ""]);
    }

    #[test]
    fn a_file_says_enough_by_itself_and_nothing_says_too_little() {
        let file = pb::MessageAttachment { kind: "photo".into(), ..Default::default() };
        let photo = pb::AcceptRequest { text: String::new(), attachments: vec![file], ..request() };
        let nothing = pb::AcceptRequest { text: " ".into(), ..request() };

        assert_eq!(ChannelMessage::new(photo, 100).unwrap().body.attachments.len(), 1);
        assert!(matches!(ChannelMessage::new(nothing, 100), Err(Error::Empty)));
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
            (pb::AcceptRequest { sender_id: "=telegram:7".into(), ..request() }, "begins with `=`"),
            (pb::AcceptRequest { peer_id: "=telegram:7".into(), ..request() }, "begins with `=`"),
        ] {
            let error = ChannelMessage::new(wrong, 100).unwrap_err().to_string();

            assert!(error.contains(told), "{error}");
        }
    }
}
