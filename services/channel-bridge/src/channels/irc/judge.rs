//! Classification of a message: one to accept, one to refuse, or nothing to do.

use holdfast_directory::channel::{IrcIdentity, IrcSettings};
use holdfast_proto::gateway::v1::{AcceptRequest, SenderAssurance};
use holdfast_types::{Command, MessageId};

use super::wire::{self, Line};
use crate::{channel::Place, inbound::Verdict};

/// Classifies a PRIVMSG that was received by the client called `nick`.
pub(super) fn judge(line: &Line, settings: &IrcSettings, nick: &str) -> Verdict {
    let (target, text) = (line.param(0), line.param(1));
    if line.source.is_empty() || line.source.eq_ignore_ascii_case(nick) {
        return Verdict::Ignore("author");
    }
    let text = match text.strip_prefix('\u{1}') {
        None => text.to_owned(),
        // `/me` of a client.
        Some(ctcp) => match ctcp.trim_end_matches('\u{1}').strip_prefix("ACTION ") {
            Some(action) => format!("* {} {action}", line.source),
            None => return Verdict::Ignore("ctcp"),
        },
    };
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.trim().is_empty() {
        return Verdict::Ignore("content");
    }
    let is_group = wire::is_channel(target);
    let identity = match settings.identify_by {
        IrcIdentity::Account => line.tag("account").map(str::to_owned),
        IrcIdentity::Nick => Some(line.source.clone()),
    };
    let assurance = assurance(settings, identity.is_some());
    let identity = identity.map(|name| name.to_ascii_lowercase());
    // In account mode a nick proves nothing, so it is not compared.
    let name = match settings.identify_by {
        IrcIdentity::Account => "",
        IrcIdentity::Nick => line.source.as_str(),
    };
    let is_listed = identity.as_deref().is_some_and(|id| settings.allow.names(id, name));
    let is_allowed = match is_group {
        true => is_joined(settings, target),
        false => is_listed || settings.allow.allows(identity.as_deref().unwrap_or_default(), name),
    };
    match (is_allowed, is_group) {
        (true, _) => {}
        (false, true) => return Verdict::Ignore("not_allowed"),
        (false, false) => {
            let place = Place { chat: line.source.clone(), thread: None };
            let sender = identity.unwrap_or_else(|| format!("{} (not logged in)", line.source));
            return Verdict::Refuse { place, sender };
        }
    }
    // Without an account somebody is known by a nick only, which the sign tells apart from accounts.
    let sender_id = identity.unwrap_or_else(|| format!("~{}", line.source.to_ascii_lowercase()));
    let chat = if is_group { target.to_ascii_lowercase() } else { line.source.clone() };
    let (text, is_named) = without_nick(&text, nick);
    let is_mentioned = is_named || names(&text, nick);
    let peer_id = if is_group { chat.clone() } else { sender_id.clone() };
    // The server sends a message once; a message id is a tag of newer servers.
    let id = line.tag("msgid").map_or_else(|| MessageId::generate().to_string(), str::to_owned);
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: format!("msg:{id}").chars().take(200).collect(),
        peer_kind: if is_group { "group" } else { "direct" }.to_owned(),
        peer_id,
        sender_id,
        sender_name: line.source.clone(),
        text: typed_command(text),
        reply_chat: chat,
        // The name with which an answer in a channel begins.
        reply_to: if is_group { line.source.clone() } else { String::new() },
        silent: is_group && settings.mention_only && !is_mentioned,
        sender_listed: is_listed,
        sender_assurance: assurance.into(),
        ..AcceptRequest::default()
    }))
}

/// How sure the server is of a sender: anybody can take a nick that is not in use.
fn assurance(settings: &IrcSettings, has_identity: bool) -> SenderAssurance {
    match settings.identify_by {
        IrcIdentity::Account if has_identity => SenderAssurance::Verified,
        IrcIdentity::Account | IrcIdentity::Nick => SenderAssurance::Weak,
    }
}

fn is_joined(settings: &IrcSettings, channel: &str) -> bool {
    let names = settings.channels.iter().filter_map(|entry| entry.split(' ').next());
    names.into_iter().any(|name| name.eq_ignore_ascii_case(channel))
}

/// Removes the nick with which a message begins, as in `bot: hello`.
fn without_nick(text: &str, nick: &str) -> (String, bool) {
    let begins = text.get(..nick.len()).is_some_and(|start| start.eq_ignore_ascii_case(nick));
    let rest = if begins { text.get(nick.len()..).unwrap_or_default() } else { "" };
    match rest.strip_prefix([':', ',']) {
        Some(rest) => (rest.trim_start().to_owned(), true),
        None => (text.to_owned(), false),
    }
}

/// Whether a text contains the nick as a word.
fn names(text: &str, nick: &str) -> bool {
    let is_in_nick = |c: char| c.is_alphanumeric() || "-_[]{}\\`^|".contains(c);
    text.split(|c| !is_in_nick(c)).any(|word| word.eq_ignore_ascii_case(nick))
}

/// Turns `!help` into `/help`: clients take what begins with a slash for commands of their own.
fn typed_command(text: String) -> String {
    let Some(rest) = text.strip_prefix('!') else { return text };
    let command = format!("/{rest}");
    match Command::parse(&command) {
        Some(_) => command,
        None => text,
    }
}

/// Shows the commands of a request for approval as they can be typed on IRC.
pub(super) fn for_typing(text: &str) -> String {
    text.replace("/approve ", "!approve ").replace("/deny ", "!deny ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(line: &str, more: serde_json::Value) -> Verdict {
        let mut settings = json!({"server": "s", "nick": "bot", "channels": ["#team key"]});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let settings = serde_json::from_value(settings).unwrap();
        judge(&Line::parse(line).unwrap(), &settings, "bot")
    }

    fn taken(line: &str, more: serde_json::Value) -> AcceptRequest {
        match verdict(line, more) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_person_is_known_by_their_account_unless_nicks_are_enough() {
        let by_nick = json!({"allow": ["Anna"], "identify_by": "nick"});
        let by_account = json!({"allow": ["anna"]});

        assert_eq!(
            taken(":Anna!u@h PRIVMSG bot :hi", json!({"allow": ["anna"], "identify_by": "nick"}))
                .sender_id,
            "anna"
        );
        let logged_in = taken("@account=Anna :x!u@h PRIVMSG bot :hi", by_account.clone());
        assert_eq!((logged_in.peer_id.as_str(), logged_in.reply_chat.as_str()), ("anna", "x"));
        assert!(logged_in.sender_listed);
        for (line, settings) in
            [(":anna!u@h PRIVMSG bot :hi", by_account), (":bob!u@h PRIVMSG bot :hi", by_nick)]
        {
            assert!(matches!(verdict(line, settings), Verdict::Refuse { .. }), "{line}");
        }
    }

    #[test]
    fn in_a_channel_what_names_nobody_is_silent() {
        for (text, silent, left) in [
            ("just talking", true, "just talking"),
            ("bot: help", false, "help"),
            ("BOT, help", false, "help"),
            ("ask bot about it", false, "ask bot about it"),
            ("robots", true, "robots"),
            ("bot: !status", false, "/status"),
        ] {
            let request = taken(&format!(":bob!u@h PRIVMSG #Team :{text}"), json!({}));
            assert_eq!((request.silent, request.text.as_str()), (silent, left), "{text}");
            assert_eq!((request.peer_id.as_str(), request.reply_to.as_str()), ("#team", "bob"));
            assert_eq!(request.sender_id, "~bob");
        }
        assert!(!taken(":bob!u@h PRIVMSG #team :x", json!({"mention_only": false})).silent);
        assert_eq!(
            verdict(":bob!u@h PRIVMSG #other :bot: x", json!({})),
            Verdict::Ignore("not_allowed")
        );
    }

    #[test]
    fn an_action_is_told_and_other_requests_of_clients_are_ignored() {
        let open = || json!({"allow": ["*"], "identify_by": "nick"});

        let waves = taken(":anna!u@h PRIVMSG bot :\u{1}ACTION waves\u{1}", open());
        assert_eq!(waves.text, "* anna waves");
        let version = verdict(":anna!u@h PRIVMSG bot :\u{1}VERSION\u{1}", open());
        assert_eq!(version, Verdict::Ignore("ctcp"));
        assert_eq!(verdict(":bot!u@h PRIVMSG bot :me", open()), Verdict::Ignore("author"));
    }

    #[test]
    fn commands_can_be_typed() {
        assert_eq!(typed_command("!help".into()), "/help");
        assert_eq!(typed_command("!important".into()), "!important");
        assert_eq!(
            for_typing("Answer:\n/approve 1a – once\n/deny 1a"),
            "Answer:\n!approve 1a – once\n!deny 1a"
        );
    }
}
