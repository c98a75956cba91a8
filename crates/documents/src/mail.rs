//! Mails: the text that people see, forwarded mails, and attachments that can be read.

use std::borrow::Cow;

use mail_parser::{
    Address, Encoding, Message, MessageParser, MessagePart, MimeHeaders as _, PartType,
    decoders::{base64::base64_decode, quoted_printable::quoted_printable_decode},
};

use crate::{
    Document, DocumentKind, Error, decode_text, html,
    writer::{TextWriter, one_line},
};

/// Maximum depth of mails within mails.
pub const MAX_MAIL_DEPTH: usize = 4;

/// Maximum number of attachments of a mail that are read.
pub(crate) const MAX_ATTACHMENTS: usize = 32;

/// Maximum number of addresses that are named.
pub(crate) const MAX_ADDRESSES: usize = 20;

/// Line above a forwarded mail.
pub(crate) const FORWARDED_LINE: &str = "---------- Forwarded message ----------";

/// Reader of an attached file, from its content and its name.
pub(crate) type AttachmentReader<'a> = &'a dyn Fn(&[u8], &str) -> Result<String, Error>;

/// Text of a mail's body, as people see it: HTML with the addresses of its links and the
/// descriptions of its images.
#[must_use]
pub fn body_text(message: &Message<'_>) -> String {
    let text = |parts: &[u32]| {
        let parts = parts.iter().filter_map(|part| message.part(*part));
        let parts = parts.filter_map(|part| part_text(message, part));
        let parts = parts.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        parts.collect::<Vec<_>>().join("\n\n")
    };
    let plain = text(&message.text_body);
    if plain.is_empty() { text(&message.html_body) } else { plain }
}

fn part_text(message: &Message<'_>, part: &MessagePart<'_>) -> Option<String> {
    match &part.body {
        PartType::Text(text) => Some(decoded(message, part, text)),
        PartType::Html(page) => Some(html::mail_text(&decoded(message, part, page))),
        PartType::Binary(_)
        | PartType::InlineBinary(_)
        | PartType::Message(_)
        | PartType::Multipart(_) => None,
    }
}

/// Text of a part whose encoding may not be declared: the parser takes it for UTF-8 then.
fn decoded(message: &Message<'_>, part: &MessagePart<'_>, text: &str) -> String {
    let is_lossy = !has_charset(part) && text.contains(char::REPLACEMENT_CHARACTER);
    let content = is_lossy.then(|| original(message, part)).flatten();
    let decoded = content.and_then(|content| decode_text(&content, None));
    decoded.map_or_else(|| text.to_owned(), |decoded| decoded.text)
}

fn has_charset(part: &MessagePart<'_>) -> bool {
    part.content_type().and_then(|kind| kind.attribute("charset")).is_some()
}

/// Content of a part as it was sent, without its transfer encoding.
fn original(message: &Message<'_>, part: &MessagePart<'_>) -> Option<Vec<u8>> {
    let (start, end) = (part.offset_body as usize, part.offset_end as usize);
    let encoded = message.raw_message.get(start..end)?;
    match part.encoding {
        Encoding::None => Some(encoded.to_vec()),
        Encoding::QuotedPrintable => quoted_printable_decode(encoded),
        Encoding::Base64 => base64_decode(encoded),
    }
}

/// Content of an attached file. The parser decodes text; a page names its own encoding, and a text
/// without a declared one is not always UTF-8, so both keep their bytes.
#[must_use]
pub fn file_content<'a>(message: &Message<'_>, part: &'a MessagePart<'_>) -> Cow<'a, [u8]> {
    let content = match &part.body {
        PartType::Html(_) => original(message, part),
        PartType::Text(_) if !has_charset(part) => original(message, part),
        PartType::Text(_)
        | PartType::Binary(_)
        | PartType::InlineBinary(_)
        | PartType::Message(_)
        | PartType::Multipart(_) => None,
    };
    content.map_or_else(|| Cow::Borrowed(part.contents()), Cow::Owned)
}

/// Author, recipients, date and subject of a mail, each on a line.
#[must_use]
pub fn header_lines(message: &Message<'_>) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push_str(&format!("{name}: {value}\n"));
        }
    };
    line("From", addresses(message.from()));
    line("To", addresses(message.to()));
    line("Cc", addresses(message.cc()));
    line("Date", message.date().map(mail_parser::DateTime::to_rfc822).unwrap_or_default());
    line("Subject", one_line(message.subject().unwrap_or_default()));
    lines
}

fn addresses(list: Option<&Address<'_>>) -> String {
    let list = list.into_iter().flat_map(Address::iter).take(MAX_ADDRESSES);
    let list = list.map(|one| match (one.name(), one.address()) {
        (Some(name), Some(address)) => format!("{} <{}>", one_line(name), one_line(address)),
        (Some(only), None) | (None, Some(only)) => one_line(only),
        (None, None) => String::new(),
    });
    list.collect::<Vec<_>>().join(", ")
}

/// Mails that a mail forwards as attachments, the outermost first.
#[must_use]
pub fn forwarded<'a>(message: &'a Message<'a>) -> Vec<&'a Message<'a>> {
    let mut found = Vec::new();
    let mut open = vec![(message, 0)];
    while let Some((message, depth)) = open.pop() {
        if depth > 0 {
            found.push(message);
        }
        if depth < MAX_MAIL_DEPTH {
            let inner = message.attachments().filter_map(|part| part.message());
            open.extend(
                inner.map(|inner| (inner, depth + 1)).collect::<Vec<_>>().into_iter().rev(),
            );
        }
    }
    found
}

/// Text of a forwarded mail, below a line that says so.
#[must_use]
pub fn forwarded_text(message: &Message<'_>) -> String {
    let text = body_text(message);
    format!("{FORWARDED_LINE}\n{}\n{text}", header_lines(message))
}

/// Reads a mail as a document, with its attachments.
pub(crate) fn read(content: &[u8], attachments: AttachmentReader<'_>) -> Result<Document, Error> {
    let damaged = Error::Damaged(DocumentKind::Mail);
    let message = MessageParser::default().parse(content).ok_or_else(|| damaged.clone())?;
    if message.headers().is_empty() {
        return Err(damaged);
    }
    let mut writer = TextWriter::default();
    writer.paragraph(&header_lines(&message))?;
    writer.paragraph(&body_text(&message))?;
    write_attachments(&message, &mut writer, attachments)?;
    for inner in forwarded(&message) {
        writer.paragraph(&forwarded_text(inner))?;
        write_attachments(inner, &mut writer, attachments)?;
    }
    let title = one_line(message.subject().unwrap_or_default());
    Ok(Document { kind: DocumentKind::Mail, title, text: writer.finish() })
}

fn write_attachments(
    message: &Message<'_>,
    writer: &mut TextWriter,
    attachments: AttachmentReader<'_>,
) -> Result<(), Error> {
    let files = message.attachments().filter(|part| part.message().is_none());
    for part in files.take(MAX_ATTACHMENTS) {
        let name = part.attachment_name().unwrap_or_default();
        write_attachment(writer, name, &file_content(message, part), attachments)?;
    }
    Ok(())
}

/// Writes the text of a mail's attachment, or the reason why it has none.
pub(crate) fn write_attachment(
    writer: &mut TextWriter,
    name: &str,
    content: &[u8],
    attachments: AttachmentReader<'_>,
) -> Result<(), Error> {
    let name = one_line(name);
    let shown = if name.is_empty() { "without a name" } else { &name };
    writer.heading(2, &format!("Attachment: {shown} ({} bytes)", content.len()))?;
    match attachments(content, &name) {
        Ok(text) => writer.paragraph(&text),
        Err(error) => writer.paragraph(&format!("(it {error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain;

    fn read_text(mail: &str) -> String {
        let attachment = |content: &[u8], _: &str| plain::text(content, None);
        read(mail.replace('\n', "\r\n").as_bytes(), &attachment).unwrap().text
    }

    #[test]
    fn a_mail_is_its_header_and_what_people_see_of_its_body() {
        let text = read_text(
            "From: Anna <anna@x.example>\nTo: b@x.example\nSubject: =?utf-8?B?5ZCI5ZCM?=\n\
             Date: Mon, 5 Jan 2026 10:00:00 +0100\nContent-Type: text/html; charset=gb2312\n\
             Content-Transfer-Encoding: quoted-printable\n\n\
             <p>=BA=CF=CD=AC</p><a href=3D'https://x.example/?t=3D1'>Sign in</a>\n",
        );

        assert_eq!(
            text,
            "From: Anna <anna@x.example>\nTo: b@x.example\nDate: Mon, 5 Jan 2026 10:00:00 +0100\n\
             Subject: 合同\n\n合同\n\n[Sign in](https://x.example/?t=1)"
        );
    }

    #[test]
    fn attachments_and_forwarded_mails_are_read_with_it() {
        let text = read_text(
            "From: a@x.example\nSubject: Fwd: offer\nContent-Type: multipart/mixed; boundary=x\n\n\
             --x\n\nsee below\n--x\nContent-Type: message/rfc822\n\n\
             From: c@x.example\nSubject: offer\nContent-Type: multipart/mixed; boundary=y\n\n\
             --y\nContent-Transfer-Encoding: base64\n\nSGVsbG8=\n--y\n\
             Content-Type: text/csv\nContent-Disposition: attachment; filename*0*=UTF-8''%E5%90%88;\n \
             filename*1*=%E5%90%8C; filename*2=.csv\n\n1,2\n--y--\n--x--\n",
        );

        assert_eq!(
            text,
            "From: a@x.example\nSubject: Fwd: offer\n\nsee below\n\n\
             ---------- Forwarded message ----------\nFrom: c@x.example\nSubject: offer\n\nHello\n\n\
             ## Attachment: 合同.csv (3 bytes)\n\n1,2"
        );
    }
}
