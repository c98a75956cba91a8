//! Messages of Outlook.

use std::io::{Cursor, Write as _};

use cfb::CompoundFile;
use proptest::prelude::*;

use super::*;

/// Message in the making: a compound file, as Outlook writes it.
struct MessageWriter(CompoundFile<Cursor<Vec<u8>>>);

impl MessageWriter {
    fn new() -> Self {
        Self(CompoundFile::create(Cursor::new(Vec::new())).unwrap())
    }

    fn put(&mut self, path: &str, content: &[u8]) {
        self.0.create_stream(path).unwrap().write_all(content).unwrap();
    }

    fn folder(&mut self, path: &str, header: usize, fixed: &[(u16, u16, i64)]) {
        if path != "/" {
            self.0.create_storage(path).unwrap();
        }
        let mut table = vec![0; header];
        for (id, kind, value) in fixed {
            table.extend([kind.to_le_bytes(), id.to_le_bytes(), [6, 0], [0, 0]].concat());
            table.extend(value.to_le_bytes());
        }
        self.put(&format!("{path}/__properties_version1.0"), &table);
    }

    fn storage(&mut self, path: &str) {
        self.0.create_storage(path).unwrap();
    }

    fn text(&mut self, path: &str, id: u16, text: &str) {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        self.put(&format!("{path}/__substg1.0_{id:04X}001F"), &units);
    }

    fn content(self) -> Vec<u8> {
        self.0.into_inner().into_inner()
    }

    fn read(self) -> Result<Document, Error> {
        let content = self.content();
        let mut file = CompoundFile::open(Cursor::new(content.as_slice())).unwrap();
        read(&mut file, &|content, _| Ok(String::from_utf8_lossy(content).into_owned()))
    }
}

/// Message with a recipient, a file and a message within it.
fn whole_message() -> MessageWriter {
    let mut message = MessageWriter::new();
    let sent = (1_767_603_600 + 11_644_473_600) * 10_000_000;
    message.folder("/", 32, &[(id::CLIENT_SUBMIT_TIME, 0x40, sent)]);
    message.text("", id::SUBJECT, "合同");
    message.text("", id::SENDER_NAME, "Anna Müller");
    message.text("", id::SENDER_EMAIL_ADDRESS, "/O=COMPANY/CN=ANNA");
    message.text("", id::BODY, "See below.\r\nAnna");
    let recipient = "/__recip_version1.0_#00000000";
    message.folder(recipient, 8, &[(id::RECIPIENT_TYPE, 3, 1)]);
    message.text(recipient, id::DISPLAY_NAME, "Bob");
    message.text(recipient, id::SMTP_ADDRESS, "bob@x.example");
    let file = "/__attach_version1.0_#00000000";
    message.folder(file, 8, &[]);
    message.text(file, id::ATTACH_LONG_FILENAME, "prices.csv");
    message.put(&format!("{file}/__substg1.0_37010102"), b"1,2");
    let inner = "/__attach_version1.0_#00000001";
    message.folder(inner, 8, &[]);
    let inner = format!("{inner}/__substg1.0_3701000D");
    message.folder(&inner, 24, &[(id::INTERNET_CODE_PAGE, 3, 936)]);
    message.put(&format!("{inner}/__substg1.0_0037001E"), b"\xba\xcf\xcd\xac");
    message.put(
        &format!("{inner}/__substg1.0_10130102"),
        b"<p>\xba\xcf\xcd\xac</p><a href='https://x.example/t'>Sign</a>",
    );
    message
}

#[test]
fn a_message_is_its_header_its_body_and_its_attachments() {
    let document = whole_message().read().unwrap();

    assert_eq!(document.title, "合同");
    assert_eq!(
        document.text,
        "From: Anna Müller\nTo: Bob <bob@x.example>\nDate: Mon, 5 Jan 2026 09:00:00 +0000\n\
         Subject: 合同\n\nSee below.\nAnna\n\n## Attachment: prices.csv (3 bytes)\n\n1,2\n\n\
         ---------- Forwarded message ----------\n\nSubject: 合同\n\n合同\n\n\
         [Sign](https://x.example/t)"
    );
}

#[test]
fn a_body_that_is_only_rich_text_is_read() {
    let mut message = MessageWriter::new();
    message.folder("/", 32, &[]);
    let rich = [&[0; 8][..], b"MELA", &[0; 4], b"{\\rtf1 We deliver on Friday.\\par}"].concat();
    message.put("/__substg1.0_10090102", &rich);

    assert_eq!(message.read().unwrap().text, "We deliver on Friday.");
}

#[test]
fn an_object_of_another_program_and_a_damaged_attachment_cost_no_body() {
    let mut message = MessageWriter::new();
    message.folder("/", 32, &[]);
    message.text("", id::BODY, "See the sheet.");
    let object = "/__attach_version1.0_#00000000";
    message.folder(object, 8, &[]);
    message.storage(&format!("{object}/__substg1.0_3701000D"));
    message.storage("/__attach_version1.0_#00000001");
    let link = "/__attach_version1.0_#00000002";
    message.folder(link, 8, &[]);
    message.text(link, id::ATTACH_LONG_FILENAME, "plan.docx");

    assert_eq!(
        message.read().unwrap().text,
        "See the sheet.\n\n(an attachment is damaged)\n\n(the attachment plan.docx has no content)"
    );
}

#[test]
fn messages_within_messages_end_at_a_limit() {
    let mut message = MessageWriter::new();
    message.folder("/", 32, &[]);
    message.text("", id::SUBJECT, "0");
    let mut folder = String::new();
    for depth in 1..10 {
        folder.push_str("/__attach_version1.0_#00000000");
        message.folder(&folder, 8, &[]);
        folder.push_str("/__substg1.0_3701000D");
        message.folder(&folder, 24, &[]);
        message.text(&folder, id::SUBJECT, &depth.to_string());
    }

    let text = message.read().unwrap().text;

    assert!(text.contains("Subject: 4") && !text.contains("Subject: 5"), "{text}");
}

proptest! {
    #[test]
    fn any_change_of_a_message_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)
    ) {
        let mut content = whole_message().content();
        for (index, byte) in changes {
            let at = index.index(content.len());
            content[at] = byte;
        }
        if let Ok(mut file) = CompoundFile::open(Cursor::new(content.as_slice())) {
            let _ = read(&mut file, &|_, _| Ok(String::new()));
        }
    }
}
