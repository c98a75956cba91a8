//! Classification of a mail: a message to accept, or nothing to do.
//!
//! Pure: the result depends on the mail, the account's settings, and the names of its own server.
//! Strangers get no answer, since the sender of a mail may be forged; automatic mails get none, since
//! two programs would answer each other for ever.

use std::borrow::Cow;

use holdfast_directory::channel::{EmailSettings, MailAuthentication};
use holdfast_documents::mail;
use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment, SenderAssurance};
use mail_parser::{HeaderValue, Message, MessageParser, MimeHeaders as _, PartType};
use sha2::{Digest as _, Sha256};

use super::{
    authentication::{Finding, OwnServers, finding},
    quotes::without_quotation,
    sender::author_address,
};
use crate::inbound::Verdict;

/// Maximum size of an attached file, in bytes.
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Maximum size of the files of one mail together, in bytes: the gateway's limit.
const MAX_FILES_BYTES: usize = 20 * 1024 * 1024;

/// Maximum number of files of one mail: the gateway's limit.
const MAX_FILES: usize = 32;

/// Maximum length of a text, in bytes; a longer one is cut.
const MAX_TEXT_BYTES: usize = 100_000;

/// Maximum length of what the gateway stores as a thread, in bytes.
const MAX_THREAD_BYTES: usize = 240;

/// Names of programs that report about mails.
const PROGRAMS: [&str; 2] = ["mailer-daemon", "postmaster"];

/// Mail as it was fetched.
#[derive(Debug, Clone)]
pub struct Mail<'a> {
    /// The whole mail, or its header if the mail is larger than what is fetched.
    pub content: &'a [u8],
    pub size: usize,
    /// Name of its place in the mailbox, which identifies a mail without a `Message-ID`.
    pub place: String,
}

/// Why a mail of an allowed sender is refused whose sender is not verified.
pub const NOT_VERIFIED: &str = "not_verified";

pub fn judge(mail: &Mail<'_>, settings: &EmailSettings, own: &OwnServers) -> Verdict {
    let Some(message) = MessageParser::default().parse(mail.content) else {
        return Verdict::Ignore("malformed");
    };
    let Some((sender, sender_name)) = author(&message) else { return Verdict::Ignore("author") };
    if sender == settings.address {
        return Verdict::Ignore("own");
    }
    if is_automatic(&message, &sender) {
        return Verdict::Ignore("automatic");
    }
    if !settings.allows(&sender) {
        return Verdict::Ignore("not_allowed");
    }
    let Some(assurance) = sender_assurance(&message, settings, own, &sender) else {
        return Verdict::Ignore(NOT_VERIFIED);
    };
    let subject = one_line(message.subject().unwrap_or_default());
    let attachments = attachments(&message);
    let is_cut = mail.content.len() < mail.size;
    let text = match is_cut {
        true => format!("[This mail has {} bytes, which is too large to be read.]", mail.size),
        false => text_of(&message, &subject),
    };
    if text.trim().is_empty() && attachments.is_empty() && subject.is_empty() {
        return Verdict::Ignore("content");
    }
    let listed = settings.allow.names(&sender, &sender);
    let request = accept_request(&message, mail, (sender, sender_name), &subject);
    Verdict::Take(Box::new(AcceptRequest {
        text,
        attachments,
        sender_listed: listed,
        sender_assurance: assurance.into(),
        has_text_of_others: is_forwarded(&message, &subject),
        ..request
    }))
}

/// How sure it is that the mail is from the sender; `None` if the settings want it surer.
fn sender_assurance(
    message: &Message<'_>,
    settings: &EmailSettings,
    own: &OwnServers,
    sender: &str,
) -> Option<SenderAssurance> {
    if settings.authentication == MailAuthentication::Off {
        return Some(SenderAssurance::None);
    }
    let domain = sender.rsplit_once('@').map_or("", |(_, domain)| domain);
    let headers = raw_headers(message);
    let finding = finding(headers.iter().map(|(name, value)| (*name, &**value)), own, domain);
    match (finding, settings.authentication) {
        (Finding::Verified, _) => Some(SenderAssurance::Verified),
        (Finding::Weak, MailAuthentication::IfPresent) => Some(SenderAssurance::Weak),
        (Finding::Missing, MailAuthentication::IfPresent) => Some(SenderAssurance::None),
        (Finding::Weak | Finding::Missing | Finding::Failed, _) => None,
    }
}

fn accept_request(
    message: &Message<'_>,
    mail: &Mail<'_>,
    (sender, sender_name): (String, String),
    subject: &str,
) -> AcceptRequest {
    let id = message.message_id().filter(|id| is_id(id)).map(str::to_owned);
    let replied = ids(message.in_reply_to()).pop().unwrap_or_default();
    let root = ids(message.references()).into_iter().next();
    let root = root.or_else(|| Some(replied.clone()).filter(|id| !id.is_empty()));
    let root = root.or_else(|| id.clone()).unwrap_or_else(|| mail.place.clone());
    let sent_at = message.date().map(mail_parser::DateTime::to_timestamp);
    AcceptRequest {
        idempotency_key: match &id {
            Some(id) => format!("mail:{}", hex(id)),
            None => format!("place:{}", mail.place),
        },
        peer_kind: "direct".to_owned(),
        peer_id: sender.clone(),
        thread: root.clone(),
        sender_id: sender.clone(),
        sender_name,
        platform_message_id: id.clone().unwrap_or_default(),
        reply_to_message_id: replied,
        reply_chat: sender,
        reply_thread: reply_thread(&root, subject),
        reply_to: id.unwrap_or_default(),
        sent_at: sent_at.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
        ..AcceptRequest::default()
    }
}

/// Where an answer goes: the id of the thread's first mail, and the subject after a space.
fn reply_thread(root: &str, subject: &str) -> String {
    let mut thread = format!("{root} {subject}");
    while thread.len() > MAX_THREAD_BYTES {
        thread.pop();
    }
    thread.trim().to_owned()
}

/// Returns address and name of the author. A mail with several authors has none: which of them was
/// checked would not be clear.
fn author(message: &Message<'_>) -> Option<(String, String)> {
    let mut from = raw_values(message, "from");
    let (value, second) = (from.next()?, from.next());
    let address = author_address(&value).filter(|_| second.is_none())?;
    let name = message.from().and_then(|from| from.first()).and_then(|first| first.name());
    // The model reads the name: an address in it could pass for the sender's.
    let name = name.filter(|name| !name.contains('@')).unwrap_or_default();
    Some((address, one_line(name)))
}

/// Whether a program sent the mail, or a list: then nobody waits for an answer.
fn is_automatic(message: &Message<'_>, sender: &str) -> bool {
    let value = |name: &'static str| {
        raw_values(message, name).next().map(|value| value.trim().to_ascii_lowercase())
    };
    let is_list = ["list-id", "list-post", "list-unsubscribe", "feedback-id"]
        .into_iter()
        .any(|name| value(name).is_some());
    let is_marked = value("auto-submitted").is_some_and(|value| !value.starts_with("no"));
    let is_bulk = value("precedence")
        .is_some_and(|value| ["bulk", "junk", "list", "auto_reply"].contains(&value.as_str()));
    let is_bounce = value("return-path").is_some_and(|value| value == "<>" || value.is_empty());
    let is_report = message.content_type().is_some_and(|kind| {
        kind.ctype().eq_ignore_ascii_case("multipart")
            && kind.subtype().is_some_and(|sub| sub.eq_ignore_ascii_case("report"))
    });
    let local = sender.split('@').next().unwrap_or_default();
    let is_reply_of_program = value("x-autoreply").is_some() || value("x-autorespond").is_some();
    is_list
        || is_marked
        || is_bulk
        || is_bounce
        || is_report
        || is_reply_of_program
        || PROGRAMS.contains(&local)
}

/// Text of the mail without what it quotes, below its subject.
fn text_of(message: &Message<'_>, subject: &str) -> String {
    let body = mail::body_text(message);
    let body = match is_forwarded(message, subject) {
        true => {
            let forwarded = mail::forwarded(message).into_iter().map(mail::forwarded_text);
            let texts = std::iter::once(body).chain(forwarded).filter(|text| !text.is_empty());
            texts.collect::<Vec<_>>().join("\n\n")
        }
        false => without_quotation(&body),
    };
    let body = cut(&body, MAX_TEXT_BYTES);
    // An answer's subject is known from the conversation; and a command must stay first.
    match subject.is_empty() || is_answer(message) || body.starts_with('/') {
        true if !body.is_empty() => body.to_owned(),
        true => subject.to_owned(),
        false if body.is_empty() => format!("Subject: {subject}"),
        false => format!("Subject: {subject}\n\n{body}"),
    }
}

fn is_answer(message: &Message<'_>) -> bool {
    !ids(message.in_reply_to()).is_empty() || !ids(message.references()).is_empty()
}

fn is_forwarded(message: &Message<'_>, subject: &str) -> bool {
    let subject = subject.to_lowercase();
    ["fwd:", "fw:", "wg:", "tr:"].iter().any(|prefix| subject.starts_with(prefix))
        || message.attachments().any(|part| matches!(part.body, PartType::Message(_)))
}

/// Attached files, also those of forwarded mails, whose texts are in the text of the mail.
fn attachments(message: &Message<'_>) -> Vec<MessageAttachment> {
    let mut left = MAX_FILES_BYTES;
    let attachment = |(message, part): (&Message<'_>, &mail_parser::MessagePart<'_>)| {
        let kind = part.content_type();
        let media_type = kind.map(|kind| {
            format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("octet-stream")).to_lowercase()
        });
        let media_type = media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
        let content = mail::file_content(message, part);
        // One that is too large is named, without its content.
        let is_small = content.len() <= left.min(MAX_FILE_BYTES);
        if is_small {
            left -= content.len();
        }
        MessageAttachment {
            kind: if media_type.starts_with("image/") { "picture" } else { "file" }.to_owned(),
            reference: String::new(),
            name: one_line(part.attachment_name().unwrap_or_default()),
            content: if is_small { content.into_owned() } else { Vec::new() },
            media_type,
        }
    };
    let mails = std::iter::once(message).chain(mail::forwarded(message));
    let files = mails.flat_map(|mail| mail.attachments().map(move |part| (mail, part)));
    let files = files.filter(|(_, part)| part.message().is_none());
    files.take(MAX_FILES).map(attachment).collect()
}

/// Values of a header as they were written, the topmost first.
fn raw_values<'a>(
    message: &'a Message<'_>,
    name: &'static str,
) -> impl Iterator<Item = Cow<'a, str>> {
    let headers = raw_headers(message).into_iter();
    headers.filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Headers as they were written, the topmost first, with those that are not UTF-8.
pub(super) fn raw_headers<'a>(message: &'a Message<'_>) -> Vec<(&'a str, Cow<'a, str>)> {
    let value = |header: &mail_parser::Header<'_>| {
        let (start, end) = (header.offset_start as usize, header.offset_end as usize);
        String::from_utf8_lossy(message.raw_message.get(start..end).unwrap_or_default())
    };
    message.headers().iter().map(|header| (header.name(), value(header))).collect()
}

/// Ids in a header, without angle brackets.
fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    let all: Vec<&str> = match value {
        HeaderValue::Text(id) => vec![id.as_ref()],
        HeaderValue::TextList(ids) => ids.iter().map(AsRef::as_ref).collect(),
        _ => Vec::new(),
    };
    all.into_iter().filter(|id| is_id(id)).map(str::to_owned).collect()
}

/// Whether a text can stand as an id in a header, and in what the gateway stores.
fn is_id(id: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '<' | '>');
    !id.is_empty() && id.len() <= 200 && id.chars().all(plain)
}

fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(line.trim(), 200).to_owned()
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn hex(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn settings() -> EmailSettings {
        serde_json::from_value(json!({
            "address": "agent@example.org", "imap": {"host": "mx.example.org"},
            "smtp": {"host": "mx.example.org"}, "allow": ["anna@example.com"],
        }))
        .unwrap()
    }

    fn own() -> OwnServers {
        OwnServers(vec![Some("mx.example.org".to_owned())])
    }

    const VERIFIED: &str =
        "Authentication-Results: mx.example.org; dmarc=pass header.from=example.com\n";

    /// Judges a mail that the own server has verified.
    fn verdict(content: &str) -> Verdict {
        received(&format!("{VERIFIED}{content}"))
    }

    fn received(content: &str) -> Verdict {
        let content = content.replace('\n', "\r\n");
        let mail = Mail { content: content.as_bytes(), size: content.len(), place: "1.7".into() };
        judge(&mail, &settings(), &own())
    }

    fn taken(content: &str) -> AcceptRequest {
        match verdict(content) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    fn mail(headers: &str, body: &str) -> String {
        format!("From: Anna B <Anna@Example.com>\nTo: agent@example.org\n{headers}\n{body}\n")
    }

    #[test]
    fn a_mail_begins_a_thread_with_its_subject() {
        let request = taken(&mail(
            "Message-ID: <1@example.com>\nSubject: Lunch\nDate: Mon, 5 Jan 2026 10:00:00 +0000\n",
            "When?",
        ));

        assert_eq!(
            request,
            AcceptRequest {
                idempotency_key: format!("mail:{}", hex("1@example.com")),
                peer_kind: "direct".into(),
                peer_id: "anna@example.com".into(),
                thread: "1@example.com".into(),
                sender_id: "anna@example.com".into(),
                sender_name: "Anna B".into(),
                text: "Subject: Lunch\n\nWhen?".into(),
                platform_message_id: "1@example.com".into(),
                reply_chat: "anna@example.com".into(),
                reply_thread: "1@example.com Lunch".into(),
                reply_to: "1@example.com".into(),
                sender_listed: true,
                sender_assurance: SenderAssurance::Verified.into(),
                sent_at: Some(prost_types::Timestamp { seconds: 1_767_607_200, nanos: 0 }),
                ..AcceptRequest::default()
            }
        );
    }

    #[test]
    fn an_answer_belongs_to_its_thread_and_quotes_nothing() {
        let request = taken(&mail(
            "Message-ID: <3@example.com>\nSubject: Re: Lunch\nIn-Reply-To: <2@example.org>\n\
             References: <1@example.com> <2@example.org>\n",
            "At noon.\n\nOn Mon, 5 Jan 2026, Agent wrote:\n> When?",
        ));

        assert_eq!((request.thread.as_str(), request.text.as_str()), ("1@example.com", "At noon."));
        assert_eq!(request.reply_to_message_id, "2@example.org");
    }

    #[test]
    fn what_a_program_or_a_list_or_we_sent_is_not_answered() {
        for header in [
            "Auto-Submitted: auto-replied\n",
            "Precedence: bulk\n",
            "List-Id: <list.example.com>\n",
            "Return-Path: <>\n",
            "Content-Type: multipart/report; boundary=x\n",
            "X-Autoreply: yes\n",
        ] {
            assert_eq!(verdict(&mail(header, "hi")), Verdict::Ignore("automatic"), "{header}");
        }
        assert!(matches!(verdict(&mail("Auto-Submitted: no\n", "hi")), Verdict::Take(_)));
        let from = |from: &str| verdict(&format!("From: {from}\nSubject: x\n\nhi\n"));
        assert_eq!(from("MAILER-DAEMON@example.com"), Verdict::Ignore("automatic"));
        assert_eq!(from("Agent@example.org"), Verdict::Ignore("own"));
    }

    #[test]
    fn a_stranger_is_not_answered_and_two_authors_are_none() {
        let from = |from: &str| verdict(&format!("{from}Subject: x\n\nhi\n"));

        assert_eq!(from("From: eve@example.com\n"), Verdict::Ignore("not_allowed"));
        // The name beside an address is no address.
        assert_eq!(
            from("From: \"anna@example.com\" <eve@evil.net>\n"),
            Verdict::Ignore("not_allowed")
        );
        assert_eq!(from("From: eve@evil.net, anna@example.com\n"), Verdict::Ignore("author"));
        assert_eq!(from("From: anna@example.com\nFrom: eve@evil.net\n"), Verdict::Ignore("author"));
        assert_eq!(from(""), Verdict::Ignore("author"));
    }

    #[test]
    fn what_the_settings_ask_decides_about_a_sender_who_is_not_verified() {
        let assurance = |authentication: &str, result: &str| {
            let content = mail(result, "hi").replace('\n', "\r\n");
            let mail =
                Mail { content: content.as_bytes(), size: content.len(), place: "1.7".into() };
            let mut settings = settings();
            settings.authentication = serde_json::from_value(json!(authentication)).unwrap();
            match judge(&mail, &settings, &own()) {
                Verdict::Take(request) => Ok(request.sender_assurance()),
                Verdict::Ignore(why) => Err(why),
                refused @ Verdict::Refuse { .. } => panic!("{refused:?}"),
            }
        };
        let refused = Err(NOT_VERIFIED);
        for (results, by_default, if_present) in [
            (
                "dmarc=pass header.from=example.com",
                Ok(SenderAssurance::Verified),
                Ok(SenderAssurance::Verified),
            ),
            ("spf=pass smtp.mailfrom=example.com", refused, Ok(SenderAssurance::Weak)),
            ("dmarc=fail header.from=example.com", refused, refused),
            ("none", refused, refused),
            ("", refused, Ok(SenderAssurance::None)),
        ] {
            let header = match results {
                "" => String::new(),
                results => format!("Authentication-Results: mx.example.org; {results}\n"),
            };
            assert_eq!(assurance("required", &header), by_default, "{results}");
            assert_eq!(assurance("if_present", &header), if_present, "{results}");
            assert_eq!(assurance("off", &header), Ok(SenderAssurance::None), "{results}");
        }
    }

    #[test]
    fn a_header_that_is_not_utf_8_is_not_passed_over() {
        let mut content =
            b"Authentication-Results: mx.example.org; dmarc=fail reason=\"\xff\"\r\n".to_vec();
        content.extend_from_slice(
            b"Authentication-Results: mx.example.org; dmarc=pass header.from=example.com\r\n\
              From: anna@example.com\r\n\r\nhi\r\n",
        );
        let mail = Mail { content: &content, size: content.len(), place: "1.7".into() };

        assert_eq!(judge(&mail, &settings(), &own()), Verdict::Ignore(NOT_VERIFIED));
    }

    #[test]
    fn html_becomes_text_and_files_come_along() {
        let body = "--x\nContent-Type: text/html\n\n<p>Hello <b>you</b></p><script>alert(1)</script>\n--x\n\
             Content-Type: text/csv; name=a.csv\nContent-Disposition: attachment; filename=a.csv\n\
             Content-Transfer-Encoding: base64\n\nMSwy\n--x--";
        let request =
            taken(&mail("Message-ID: <1@x>\nContent-Type: multipart/mixed; boundary=x\n", body));

        assert_eq!(request.text.trim(), "Hello you");
        let file = &request.attachments[0];
        assert_eq!((file.name.as_str(), file.content.as_slice()), ("a.csv", &b"1,2"[..]));
        assert_eq!((file.media_type.as_str(), file.kind.as_str()), ("text/csv", "file"));
    }

    #[test]
    fn html_keeps_the_addresses_of_links_and_the_descriptions_of_images() {
        let request = taken(&mail(
            "Message-ID: <1@x>\nContent-Type: text/html; charset=gb2312\n\
             Content-Transfer-Encoding: quoted-printable\n",
            "<p>=C4=FA=BA=C3</p><a href=3D\"https://x.example/?t=3DSECRET1\">Sign in</a>\
             <img src=3Dx alt=3D\"logo\">",
        ));

        assert_eq!(
            request.text.trim(),
            "您好\n\n[Sign in](https://x.example/?t=SECRET1)[image: logo]"
        );
    }

    #[test]
    fn a_forwarded_mail_is_read_and_its_files_come_along() {
        let body = "--x\nContent-Type: text/plain\n\nsee below\n--x\n\
             Content-Type: message/rfc822\n\n\
             From: Carl <carl@example.net>\nDate: Sun, 4 Jan 2026 09:00:00 +0000\n\
             Subject: =?utf-8?B?5ZCI5ZCM?=\nContent-Type: multipart/mixed; boundary=y\n\n\
             --y\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n\
             V2UgZGVsaXZlciBvbiBGcmlkYXku\n--y\nContent-Type: application/pdf\n\
             Content-Disposition: attachment; filename*=UTF-8''%E5%90%88%E5%90%8C.pdf\n\n%PDF-\n\
             --y--\n--x--";

        let request =
            taken(&mail("Subject: Fwd\nContent-Type: multipart/mixed; boundary=x\n", body));

        assert_eq!(
            request.text,
            "Subject: Fwd\n\nsee below\n\n---------- Forwarded message ----------\n\
             From: Carl <carl@example.net>\nDate: Sun, 4 Jan 2026 09:00:00 +0000\nSubject: 合同\n\n\
             We deliver on Friday."
        );
        let names: Vec<&str> = request.attachments.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["合同.pdf"]);
        assert!(request.has_text_of_others);
    }

    #[test]
    fn an_attached_text_without_a_charset_keeps_its_bytes() {
        for (encoding, content) in
            [("base64", "0NXD+yy157uw"), ("quoted-printable", "=D0=D5=C3=FB,=B5=E7=BB=B0")]
        {
            let body = format!(
                "--x\n\nhi\n--x\nContent-Type: text/csv; name=a.csv\n\
                 Content-Disposition: attachment; filename=a.csv\n\
                 Content-Transfer-Encoding: {encoding}\n\n{content}\n--x--"
            );
            let request = taken(&mail("Content-Type: multipart/mixed; boundary=x\n", &body));

            // In GBK.
            assert_eq!(request.attachments[0].content, b"\xd0\xd5\xc3\xfb,\xb5\xe7\xbb\xb0");
        }
    }

    #[test]
    fn a_file_name_is_read_in_each_of_its_forms() {
        for disposition in [
            "filename*=UTF-8''%E5%90%88%E5%90%8C.pdf",
            "filename*0*=UTF-8''%E5%90%88;\n filename*1*=%E5%90%8C;\n filename*2=.pdf",
            "filename*=GB2312''%BA%CF%CD%AC.pdf",
            "filename=\"=?utf-8?B?5ZCI5ZCM?=.pdf\"",
            "filename=\"=?gb2312?B?us/NrC5wZGY=?=\"",
            "filename=\"合同.pdf\"",
        ] {
            let body = format!(
                "--x\n\nhi\n--x\nContent-Type: application/pdf\n\
                 Content-Disposition: attachment; {disposition}\n\n%PDF-\n--x--"
            );
            let request = taken(&mail("Content-Type: multipart/mixed; boundary=x\n", &body));

            assert_eq!(request.attachments[0].name, "合同.pdf", "{disposition}");
        }
    }

    #[test]
    fn a_mail_that_is_too_large_is_named_and_a_command_stays_first() {
        let content = format!("{VERIFIED}{}", mail("Message-ID: <1@x>\nSubject: s\n", ""));
        let mail_of = Mail { content: content.as_bytes(), size: 99_000_000, place: "1.7".into() };
        let Verdict::Take(request) = judge(&mail_of, &settings(), &own()) else { panic!() };

        assert!(request.text.contains("99000000 bytes"), "{}", request.text);
        assert_eq!(taken(&mail("Subject: x\n", "/status")).text, "/status");
        assert_eq!(taken(&mail("Subject: x\n", "/status")).idempotency_key, "place:1.7");
    }

    #[test]
    fn a_forwarded_mail_is_the_text_of_others() {
        let request = taken(&mail("Subject: Fwd: x\n", "see\n\n> they wrote this"));

        assert!(request.has_text_of_others && request.text.contains("they wrote"));
    }

    #[test]
    fn where_an_answer_goes_is_short_enough_to_be_stored() {
        let thread = reply_thread(&"i".repeat(200), &"ä".repeat(200));

        assert!(thread.len() <= MAX_THREAD_BYTES && thread.starts_with("iii"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mail = Mail { content: &bytes, size: bytes.len(), place: "1.7".into() };
            judge(&mail, &settings(), &own());
        }

        #[test]
        fn any_text_is_judged(headers in "([A-Za-z-]{1,12}: [ -~]{0,40}\r\n){0,5}", body in "\\PC{0,80}") {
            let content = format!("From: anna@example.com\r\n{headers}\r\n{body}");
            let mail = Mail { content: content.as_bytes(), size: content.len(), place: "1.7".into() };
            judge(&mail, &settings(), &own());
        }
    }
}
