//! Client for the parts of IMAP4rev1 that the bridge needs (RFC 3501; IDLE: RFC 2177; special
//! folders: RFC 6154).
//!
//! Texts of ours are sent as literals or quoted, so that no name or password can end a command.
//! Lines and literals of the server are bounded.

use std::{fmt, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use crate::guard::Stream;

/// Timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Maximum size of a response with its literals, in bytes: a mail.
const MAX_RESPONSE_BYTES: usize = 30 * 1024 * 1024;

/// Maximum number of responses to one command.
const MAX_RESPONSES: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImapError {
    #[error("the connection broke, or the server did not answer in time")]
    Lost,
    /// The server answered `NO`, `BAD` or `BYE`; its text.
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error("the server's answer is not understood")]
    Malformed,
}

pub struct Imap {
    stream: BufReader<Box<dyn Stream>>,
    tags: u32,
    capabilities: Vec<String>,
}

impl fmt::Debug for Imap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imap").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

/// One response of the server: its text without the literals, and these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    text: String,
    literals: Vec<Vec<u8>>,
}

/// Folder that was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selected {
    pub uid_validity: u32,
    pub uid_next: u32,
}

/// Mail in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub size: usize,
    pub content: Vec<u8>,
}

impl Imap {
    /// Reads the greeting. With TLS that begins later, call [`start_tls`](Self::start_tls) next.
    pub async fn greet(stream: Box<dyn Stream>) -> Result<Self, ImapError> {
        let mut imap = Self::over(stream);
        let greeting =
            timeout(COMMAND_TIMEOUT, imap.read()).await.map_err(|_| ImapError::Lost)??;
        match greeting.text.strip_prefix("* OK") {
            Some(_) => Ok(imap),
            None => Err(ImapError::Refused(shown(&greeting.text))),
        }
    }

    /// Goes on over a connection without a greeting: after `STARTTLS` there is no second one.
    pub fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream: BufReader::new(stream), tags: 0, capabilities: Vec::new() }
    }

    /// Asks for TLS, and returns the connection on which it begins.
    pub async fn start_tls(mut self) -> Result<Box<dyn Stream>, ImapError> {
        self.command("STARTTLS").await?;
        // What came with the answer was not protected, and an attacker may have written it.
        match self.stream.buffer().is_empty() {
            true => Ok(self.stream.into_inner()),
            false => Err(ImapError::Malformed),
        }
    }

    pub async fn sign_in(&mut self, user: &str, password: &SecretString) -> Result<(), ImapError> {
        let tag = self.next_tag();
        let password = password.expose_secret();
        self.write(format!("{tag} LOGIN {{{}}}\r\n", user.len()).as_bytes()).await?;
        self.wait_for_continuation().await?;
        self.write(format!("{user} {{{}}}\r\n", password.len()).as_bytes()).await?;
        self.wait_for_continuation().await?;
        self.write(format!("{password}\r\n").as_bytes()).await?;
        self.finish(&tag).await?;
        let replies = self.command("CAPABILITY").await?;
        let listed = replies.iter().find_map(|reply| reply.text.strip_prefix("* CAPABILITY "));
        let listed = listed.unwrap_or_default().to_ascii_uppercase();
        self.capabilities = listed.split_ascii_whitespace().map(str::to_owned).collect();
        Ok(())
    }

    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|known| known == capability)
    }

    /// Opens a folder.
    pub async fn select(&mut self, folder: &str) -> Result<Selected, ImapError> {
        let replies = self.command(&format!("SELECT {}", quoted(folder))).await?;
        let number = |name: &str| {
            let mut texts = replies.iter().map(|reply| reply.text.as_str());
            leading_number(texts.find_map(|text| text.split_once(name).map(|(_, rest)| rest))?)
        };
        let uid_validity = number("[UIDVALIDITY ").ok_or(ImapError::Malformed)?;
        let uid_next = match number("[UIDNEXT ") {
            Some(next) => next,
            None => self.search("ALL").await?.last().map_or(1, |uid| uid + 1),
        };
        Ok(Selected { uid_validity, uid_next })
    }

    /// Returns the UIDs that match, in ascending order.
    pub async fn search(&mut self, criteria: &str) -> Result<Vec<u32>, ImapError> {
        let replies = self.command(&format!("UID SEARCH {criteria}")).await?;
        let lists = replies.iter().filter_map(|reply| reply.text.strip_prefix("* SEARCH"));
        let uids = lists.flat_map(str::split_ascii_whitespace);
        let mut uids: Vec<u32> = uids.filter_map(|uid| uid.parse().ok()).collect();
        uids.sort_unstable();
        Ok(uids)
    }

    /// Returns a mail; of one that is larger than `most` only the header. `None` if it is gone.
    pub async fn fetch(&mut self, uid: u32, most: usize) -> Result<Option<Fetched>, ImapError> {
        let replies = self.command(&format!("UID FETCH {uid} (RFC822.SIZE)")).await?;
        let size = replies.iter().find_map(|reply| item(&reply.text, "RFC822.SIZE"));
        let Some(size) = size else { return Ok(None) };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let part = if size > most { "BODY.PEEK[HEADER]" } else { "BODY.PEEK[]" };
        let replies = self.command(&format!("UID FETCH {uid} ({part})")).await?;
        let mut contents = replies.into_iter().filter(|reply| !reply.literals.is_empty());
        let content = contents.find(|reply| item(&reply.text, "UID") == Some(uid));
        let content = content.map(|mut reply| reply.literals.swap_remove(0));
        Ok(content.map(|content| Fetched { size, content }))
    }

    pub async fn mark_seen(&mut self, uid: u32) -> Result<(), ImapError> {
        self.add_flag(uid, "\\Seen").await
    }

    /// Adds a flag, or a keyword, which is an atom.
    pub async fn add_flag(&mut self, uid: u32, flag: &'static str) -> Result<(), ImapError> {
        self.command(&format!("UID STORE {uid} +FLAGS.SILENT ({flag})")).await.map(drop)
    }

    /// Returns the folder of sent mails: the one that the server marks so.
    pub async fn sent_folder(&mut self) -> Result<Option<String>, ImapError> {
        let replies = self.command("LIST \"\" \"*\"").await?;
        Ok(replies.iter().find_map(sent_folder))
    }

    /// Whether the open folder has a mail with this `Message-ID`.
    pub async fn has_mail(&mut self, message_id: &str) -> Result<bool, ImapError> {
        let found = self.search(&format!("HEADER Message-ID {}", quoted(message_id))).await?;
        Ok(!found.is_empty())
    }

    /// Stores a mail in a folder, as read.
    pub async fn append(&mut self, folder: &str, mail: &[u8]) -> Result<(), ImapError> {
        let tag = self.next_tag();
        let command = format!("{tag} APPEND {} (\\Seen) {{{}}}\r\n", quoted(folder), mail.len());
        self.write(command.as_bytes()).await?;
        self.wait_for_continuation().await?;
        self.write(mail).await?;
        self.write(b"\r\n").await?;
        self.finish(&tag).await.map(drop)
    }

    /// Waits up to `wait` until the server says that something has changed in the open folder.
    pub async fn idle(&mut self, wait: Duration) -> Result<(), ImapError> {
        let tag = self.next_tag();
        self.write(format!("{tag} IDLE\r\n").as_bytes()).await?;
        self.wait_for_continuation().await?;
        let changed = async {
            loop {
                let reply = self.read().await?;
                if reply.text.starts_with("* BYE") {
                    return Err(ImapError::Refused(shown(&reply.text)));
                }
                // `* OK Still here` keeps a connection alive.
                if !reply.text.starts_with("* OK") {
                    return Ok(());
                }
            }
        };
        // A line that is cut off here loses its beginning, which `finish` passes over.
        if let Ok(changed) = timeout(wait, changed).await {
            changed?;
        }
        self.write(b"DONE\r\n").await?;
        self.finish(&tag).await.map(drop)
    }

    pub async fn sign_out(&mut self) {
        let _ = self.command("LOGOUT").await;
    }

    /// Executes a command, and returns the responses to it.
    pub async fn command(&mut self, command: &str) -> Result<Vec<Reply>, ImapError> {
        let tag = self.next_tag();
        self.write(format!("{tag} {command}\r\n").as_bytes()).await?;
        self.finish(&tag).await
    }

    fn next_tag(&mut self) -> String {
        self.tags += 1;
        format!("a{}", self.tags)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ImapError> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match timeout(COMMAND_TIMEOUT, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ImapError::Lost),
        }
    }

    /// Waits until the server asks for more.
    async fn wait_for_continuation(&mut self) -> Result<(), ImapError> {
        let asked = async {
            loop {
                let reply = self.read().await?;
                if reply.text.starts_with('+') {
                    return Ok(());
                }
                if !reply.text.starts_with("* ") || reply.text.starts_with("* BYE") {
                    return Err(ImapError::Refused(shown(&reply.text)));
                }
            }
        };
        timeout(COMMAND_TIMEOUT, asked).await.map_err(|_| ImapError::Lost)?
    }

    /// Reads until the end of a command, and returns what came before.
    async fn finish(&mut self, tag: &str) -> Result<Vec<Reply>, ImapError> {
        let finished = async {
            let mut replies = Vec::new();
            while replies.len() < MAX_RESPONSES {
                let reply = self.read().await?;
                let status = reply.text.strip_prefix(tag).and_then(|rest| rest.strip_prefix(' '));
                let Some(status) = status else {
                    replies.push(reply);
                    continue;
                };
                return match status.get(..2) {
                    Some(ok) if ok.eq_ignore_ascii_case("OK") => Ok(replies),
                    _ => Err(ImapError::Refused(shown(status))),
                };
            }
            Err(ImapError::Malformed)
        };
        timeout(COMMAND_TIMEOUT, finished).await.map_err(|_| ImapError::Lost)?
    }

    async fn read(&mut self) -> Result<Reply, ImapError> {
        read_reply(&mut self.stream).await
    }
}

/// Reads one response: a line, or several with literals between them.
async fn read_reply(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Reply, ImapError> {
    let mut reply = Reply::default();
    let mut size = 0_usize;
    loop {
        let line = read_line(stream).await?;
        size = size.saturating_add(line.len());
        let line = String::from_utf8_lossy(&line).into_owned();
        let Some(length) = literal_length(&line) else {
            reply.text.push_str(&line);
            return Ok(reply);
        };
        size = size.saturating_add(length);
        if size > MAX_RESPONSE_BYTES {
            return Err(ImapError::Malformed);
        }
        reply.text.push_str(&line[..line.rfind('{').unwrap_or_default()]);
        let mut literal = vec![0; length];
        stream.read_exact(&mut literal).await.map_err(|_| ImapError::Lost)?;
        reply.literals.push(literal);
    }
}

/// Reads a line without its end. Unlike `read_until` it has a limit.
async fn read_line(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Vec<u8>, ImapError> {
    let mut line = Vec::new();
    loop {
        let available = stream.fill_buf().await.map_err(|_| ImapError::Lost)?;
        if available.is_empty() {
            return Err(ImapError::Lost);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |at| at + 1);
        line.extend_from_slice(&available[..taken]);
        stream.consume(taken);
        if end.is_some() {
            let kept = line.len() - if line.ends_with(b"\r\n") { 2 } else { 1 };
            line.truncate(kept);
            return Ok(line);
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(ImapError::Malformed);
        }
    }
}

/// Length of the literal that follows a line: `{310}` at its end.
fn literal_length(line: &str) -> Option<usize> {
    let (_, length) = line.strip_suffix('}')?.rsplit_once('{')?;
    length.trim_end_matches('+').parse().ok()
}

/// Number after a name in the items of a `FETCH` response.
fn item(text: &str, name: &str) -> Option<u32> {
    let mut words = text.split(|letter: char| letter.is_whitespace() || "()".contains(letter));
    words.find(|word| word.eq_ignore_ascii_case(name))?;
    words.next()?.parse().ok()
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

/// Folder of a `LIST` response whose attributes say that it has the sent mails.
fn sent_folder(reply: &Reply) -> Option<String> {
    let rest = reply.text.strip_prefix("* LIST (")?;
    let (attributes, rest) = rest.split_once(')')?;
    attributes.split_ascii_whitespace().find(|name| name.eq_ignore_ascii_case("\\Sent"))?;
    if let Some(name) = reply.literals.first() {
        return String::from_utf8(name.clone()).ok();
    }
    // The delimiter, `"/"` or NIL, and the name.
    let (_, name) = rest.trim_start().split_once(' ')?;
    let name = name.trim();
    Some(match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => name.to_owned(),
    })
}

/// A text as a quoted string; control characters, which it cannot hold, are left out.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Text of a server for people.
fn shown(text: &str) -> String {
    let text = text.trim_start_matches("* ").trim();
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read(bytes: &[u8]) -> Result<Reply, ImapError> {
        read_reply(&mut BufReader::with_capacity(3, bytes)).await
    }

    #[tokio::test]
    async fn a_response_is_read_with_its_literals() {
        let bytes = b"* 1 FETCH (UID 7 BODY[] {5}\r\na\r\nb) FLAGS ())\r\nnext";

        let reply = read(bytes).await.unwrap();

        assert_eq!(reply.literals, [b"a\r\nb)".to_vec()]);
        assert_eq!(reply.text, "* 1 FETCH (UID 7 BODY[]  FLAGS ())");
        assert_eq!((item(&reply.text, "uid"), item(&reply.text, "RFC822.SIZE")), (Some(7), None));
    }

    #[tokio::test]
    async fn what_is_too_long_or_ends_early_is_refused() {
        assert_eq!(read(b"* OK").await, Err(ImapError::Lost));
        assert_eq!(read(b"x {10}\r\nabc").await, Err(ImapError::Lost));
        assert_eq!(read(b"x {99999999999}\r\n").await, Err(ImapError::Malformed));
        assert_eq!(read(&vec![b'a'; MAX_LINE_BYTES + 9]).await, Err(ImapError::Malformed));
    }

    #[test]
    fn the_folder_of_sent_mails_is_the_one_that_is_marked() {
        let folder = |text: &str| sent_folder(&Reply { text: text.into(), literals: Vec::new() });

        let marked = folder(r#"* LIST (\HasNoChildren \Sent) "/" "Sent \"x\"""#);
        assert_eq!(marked.as_deref(), Some("Sent \"x\""));
        assert_eq!(folder(r"* LIST (\sent) NIL Sent").as_deref(), Some("Sent"));
        assert_eq!(folder(r#"* LIST (\HasNoChildren) "/" Sent"#), None);
    }

    #[test]
    fn a_text_cannot_end_a_command() {
        assert_eq!(quoted("a\"b\\c\r\nA1 LOGOUT"), r#""a\"b\\cA1 LOGOUT""#);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(read(&bytes));
        }
    }
}
