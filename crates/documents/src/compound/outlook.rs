//! Messages of Outlook (.msg): a compound file whose streams are properties (MS-OXMSG).

mod properties;

use self::properties::{HeaderLength, PROPERTIES_STREAM, Properties};
use crate::{
    Document, DocumentKind, Error, UnreadableKind,
    compound::Container,
    decode_text, html,
    mail::{
        AttachmentReader, FORWARDED_LINE, MAX_ADDRESSES, MAX_ATTACHMENTS, MAX_MAIL_DEPTH,
        write_attachment,
    },
    rtf,
    writer::{TextWriter, one_line},
};

/// Identifiers of properties (MS-OXPROPS).
mod id {
    pub const SUBJECT: u16 = 0x0037;
    pub const CLIENT_SUBMIT_TIME: u16 = 0x0039;
    pub const SENT_REPRESENTING_NAME: u16 = 0x0042;
    pub const SENT_REPRESENTING_EMAIL_ADDRESS: u16 = 0x0065;
    pub const RECIPIENT_TYPE: u16 = 0x0c15;
    pub const SENDER_NAME: u16 = 0x0c1a;
    pub const SENDER_EMAIL_ADDRESS: u16 = 0x0c1f;
    pub const DISPLAY_CC: u16 = 0x0e03;
    pub const DISPLAY_TO: u16 = 0x0e04;
    pub const MESSAGE_DELIVERY_TIME: u16 = 0x0e06;
    pub const BODY: u16 = 0x1000;
    pub const RTF_COMPRESSED: u16 = 0x1009;
    pub const BODY_HTML: u16 = 0x1013;
    pub const DISPLAY_NAME: u16 = 0x3001;
    pub const EMAIL_ADDRESS: u16 = 0x3003;
    pub const ATTACH_DATA: u16 = 0x3701;
    pub const ATTACH_FILENAME: u16 = 0x3704;
    pub const ATTACH_LONG_FILENAME: u16 = 0x3707;
    pub const SMTP_ADDRESS: u16 = 0x39fe;
    pub const INTERNET_CODE_PAGE: u16 = 0x3fde;
    pub const MESSAGE_CODE_PAGE: u16 = 0x3ffd;
    pub const SENDER_SMTP_ADDRESS: u16 = 0x5d01;
    pub const SENT_REPRESENTING_SMTP_ADDRESS: u16 = 0x5d02;
}

/// Values of the type of a recipient.
const RECIPIENT_TO: i32 = 1;
const RECIPIENT_CC: i32 = 2;

/// Reads a message as a document, with its attachments.
pub fn read(
    file: &mut Container<'_>,
    attachments: AttachmentReader<'_>,
) -> Result<Document, Error> {
    let mut writer = TextWriter::default();
    let mut reader = MessageReader { file, attachments, writer: &mut writer };
    let title = reader.message("/", HeaderLength::Message, 0)?;
    Ok(Document { kind: DocumentKind::Mail, title, text: writer.finish() })
}

struct MessageReader<'r, 'a> {
    file: &'r mut Container<'a>,
    attachments: AttachmentReader<'r>,
    writer: &'r mut TextWriter,
}

impl MessageReader<'_, '_> {
    /// Reads the message in a folder of the compound file; returns its subject.
    fn message(
        &mut self,
        folder: &str,
        header: HeaderLength,
        depth: usize,
    ) -> Result<String, Error> {
        let mut properties = Properties::read(self.file, folder, header)?;
        let code_page = properties.number(id::MESSAGE_CODE_PAGE);
        properties.code_page = code_page.or_else(|| properties.number(id::INTERNET_CODE_PAGE));
        let subject = one_line(&properties.text(self.file, id::SUBJECT));
        let header = self.header_lines(folder, &properties, &subject);
        let body = body(self.file, &properties);
        self.writer.paragraph(&header)?;
        self.writer.paragraph(body.trim())?;
        let names = self.folders(folder, "__attach_version1.0_");
        for name in names.into_iter().take(MAX_ATTACHMENTS) {
            self.attachment(&format!("{folder}{name}/"), properties.code_page, depth)?;
        }
        Ok(subject)
    }

    /// Author, recipients, date and subject of a message, each on a line.
    fn header_lines(&mut self, folder: &str, properties: &Properties, subject: &str) -> String {
        let mut text = |ids: &[u16]| {
            let mut values = ids.iter().map(|id| one_line(&properties.text(self.file, *id)));
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let name = text(&[id::SENT_REPRESENTING_NAME, id::SENDER_NAME]);
        let address = text(&[
            id::SENT_REPRESENTING_SMTP_ADDRESS,
            id::SENDER_SMTP_ADDRESS,
            id::SENT_REPRESENTING_EMAIL_ADDRESS,
            id::SENDER_EMAIL_ADDRESS,
        ]);
        let shown = [text(&[id::DISPLAY_TO]), text(&[id::DISPLAY_CC])];
        let recipients = self.recipients(folder, properties.code_page);
        let [to, cc] = [(RECIPIENT_TO, 0), (RECIPIENT_CC, 1)].map(|(kind, index)| {
            let of_kind = recipients.iter().filter(|(own, _)| *own == kind);
            let all: Vec<&str> = of_kind.map(|(_, recipient)| recipient.as_str()).collect();
            if all.is_empty() { shown[index].clone() } else { all.join(", ") }
        });
        let date = properties.time(id::CLIENT_SUBMIT_TIME);
        let date = date.or_else(|| properties.time(id::MESSAGE_DELIVERY_TIME));
        let date = date.map(|at| mail_parser::DateTime::from_timestamp(at).to_rfc822());
        let lines = [
            ("From", mailbox(&name, &address)),
            ("To", to),
            ("Cc", cc),
            ("Date", date.unwrap_or_default()),
            ("Subject", subject.to_owned()),
        ];
        let lines = lines.into_iter().filter(|(_, value)| !value.is_empty());
        lines.map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    /// Recipients of a message, with their types.
    fn recipients(&mut self, folder: &str, code_page: Option<i32>) -> Vec<(i32, String)> {
        let names = self.folders(folder, "__recip_version1.0_").into_iter().take(MAX_ADDRESSES);
        let recipient = |name: String| {
            let folder = format!("{folder}{name}/");
            let mut properties = Properties::read(self.file, &folder, HeaderLength::Part).ok()?;
            properties.code_page = code_page;
            let mut text = |id| one_line(&properties.text(self.file, id));
            let address = match text(id::SMTP_ADDRESS) {
                address if address.is_empty() => text(id::EMAIL_ADDRESS),
                address => address,
            };
            let name = text(id::DISPLAY_NAME);
            Some((properties.number(id::RECIPIENT_TYPE)?, mailbox(&name, &address)))
        };
        names.filter_map(recipient).collect()
    }

    fn attachment(
        &mut self,
        folder: &str,
        code_page: Option<i32>,
        depth: usize,
    ) -> Result<(), Error> {
        let Ok(mut properties) = Properties::read(self.file, folder, HeaderLength::Part) else {
            return self.writer.paragraph("(an attachment is damaged)");
        };
        properties.code_page = code_page;
        if let Some(message) = properties.folder_of(self.file, id::ATTACH_DATA) {
            // Objects that are drawn in the text are folders as well, of other programs.
            if !self.file.is_stream(format!("{message}{PROPERTIES_STREAM}")) {
                return Ok(());
            }
            if depth >= MAX_MAIL_DEPTH {
                let error = Error::Unreadable(UnreadableKind::DeepAttachment);
                return self.writer.paragraph(&format!("(a forwarded mail {error})"));
            }
            self.writer.paragraph(FORWARDED_LINE)?;
            self.message(&message, HeaderLength::EmbeddedMessage, depth + 1)?;
            return Ok(());
        }
        let mut text = |id| one_line(&properties.text(self.file, id));
        let names =
            [id::ATTACH_LONG_FILENAME, id::ATTACH_FILENAME, id::DISPLAY_NAME].map(&mut text);
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let Some(content) = properties.bytes(self.file, id::ATTACH_DATA) else {
            return self.writer.paragraph(&format!("(the attachment {name} has no content)"));
        };
        write_attachment(self.writer, &name, &content, self.attachments)
    }

    /// Names of the folders within a folder that begin like this.
    fn folders(&self, folder: &str, prefix: &str) -> Vec<String> {
        let Ok(entries) = self.file.read_storage(folder) else { return Vec::new() };
        let names = entries.filter(cfb::Entry::is_storage).map(|entry| entry.name().to_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort();
        names
    }
}

/// Text of a message's body: plain, from HTML, or from RTF, as it is there.
fn body(file: &mut Container<'_>, properties: &Properties) -> String {
    let plain = properties.text(file, id::BODY);
    if !plain.trim().is_empty() {
        return plain.replace("\r\n", "\n");
    }
    let page = match properties.bytes(file, id::BODY_HTML) {
        Some(content) => {
            let declared = html::declared_charset(&content);
            let encoding = properties.encoding_of(id::INTERNET_CODE_PAGE).map(|one| one.name());
            let decoded = decode_text(&content, declared.as_deref().or(encoding));
            decoded.map(|decoded| decoded.text).unwrap_or_default()
        }
        None => properties.text(file, id::BODY_HTML),
    };
    let page = html::mail_text(&page);
    if !page.trim().is_empty() {
        return page;
    }
    let Some(packed) = properties.bytes(file, id::RTF_COMPRESSED) else { return String::new() };
    match rtf::unpack(&packed).map(|content| rtf::read(&content)) {
        Some(Ok(document)) => document.text,
        Some(Err(error)) => format!("(the text of this mail {error})"),
        None => "(the text of this mail is damaged)".to_owned(),
    }
}

/// Name and address of a person. Addresses within a company's server are no addresses of mail.
fn mailbox(name: &str, address: &str) -> String {
    match (name, address) {
        (name, address) if !address.contains('@') || name == address => {
            if name.is_empty() {
                address.to_owned()
            } else {
                name.to_owned()
            }
        }
        ("", address) => address.to_owned(),
        (name, address) => format!("{name} <{address}>"),
    }
}

#[cfg(test)]
mod tests;
