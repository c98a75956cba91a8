//! The `read` tool: lines of a text file, or of the text of a document; pages of a scan as pictures.

use std::{
    fmt::{Display, Write as _},
    sync::Arc,
};

use holdfast_documents::{
    DecodedText, Document, DocumentFormat, DocumentReader, Error, FileFormat, PageImage,
    UnreadableKind, decode_text,
};
use holdfast_types::{Effect, is_picture, media_type};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Files, file_path, read_file};
use crate::{Call, Output, Part, Tool, ToolError};

/// Maximum number of lines that are read at once.
const MAX_LINES: usize = 2000;

/// Maximum length of a shown line, in characters.
const MAX_LINE_CHARS: usize = 2000;

/// Maximum size of an answer, in bytes: less than the registry's limit, which would cut off the
/// hint about the next part.
const MAX_SHOWN_BYTES: usize = 60 * 1024;

/// Read a text file, or some of its lines; each is shown after its number and a tab.
///
/// Documents (PDF, Office, RTF, EPUB, mails) are shown as text; the first pages of a PDF without text
/// as pictures.
/// Long files are read in parts: the answer says where to go on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadInput {
    /// The file, as in `notes/today.md`.
    path: String,
    /// The first line to read; the first of all is 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    from: usize,
    /// How many lines to read, from 1 to 2000.
    #[serde(default = "all")]
    #[schemars(range(min = 1, max = 2000))]
    lines: usize,
}

const fn one() -> usize {
    1
}

const fn all() -> usize {
    MAX_LINES
}

#[derive(Debug)]
pub struct Read<F> {
    pub files: Arc<F>,
    pub documents: DocumentReader,
}

/// What the model is shown of a file.
enum ReadableFile {
    /// Text, and what the model should know about it, which may be empty.
    Text {
        text: String,
        note: String,
    },
    ScannedPages(Vec<PageImage>),
}

impl<F> Read<F> {
    async fn readable(
        &self,
        call: &Call,
        path: &str,
        content: &[u8],
    ) -> Result<ReadableFile, ToolError> {
        let cannot = |reason: &dyn Display| Err(ToolError::Tell(format!("`{path}` {reason}")));
        match FileFormat::detect(content, "", path) {
            FileFormat::Text | FileFormat::Html => match decode_text(content, None) {
                Some(DecodedText { text, encoding }) if encoding.is_utf8() => {
                    Ok(ReadableFile::Text { text, note: String::new() })
                }
                Some(DecodedText { text, encoding }) => {
                    let name = encoding.name();
                    let note =
                        format!("[`{path}` is in {name}; `edit` and `apply_patch` keep that]\n");
                    Ok(ReadableFile::Text { text, note })
                }
                None => cannot(&UnreadableKind::Binary),
            },
            FileFormat::Unreadable(kind @ UnreadableKind::Image) => {
                match is_picture(media_type(path, content)) {
                    true => cannot(&format!("{kind}; the tool `image` looks at it")),
                    false => cannot(
                        &"is a picture of a kind that cannot be shown here: have it sent as JPEG \
                          or PNG",
                    ),
                }
            }
            FileFormat::Unreadable(kind) => cannot(&kind),
            FileFormat::Document(format) => self.document(call, path, format, content).await,
        }
    }

    async fn document(
        &self,
        call: &Call,
        path: &str,
        format: DocumentFormat,
        content: &[u8],
    ) -> Result<ReadableFile, ToolError> {
        let read = match self.documents.read(call.tenant, format, content).await {
            Ok(Document { kind, text, .. }) => {
                let note = format!("[`{path}` is a {kind}: this is its text]\n");
                Ok(ReadableFile::Text { text, note })
            }
            Err(Error::ScannedPdf) => {
                let pages = self.documents.scanned_pages(call.tenant, content).await;
                pages.map(ReadableFile::ScannedPages)
            }
            Err(error) => Err(error),
        };
        read.map_err(|error| match error {
            Error::NoReader => ToolError::Broken(error.into()),
            error => ToolError::Tell(format!("`{path}` {error}")),
        })
    }
}

impl<F: Files> Tool<Output> for Read<F> {
    const NAME: &'static str = "read";
    const EFFECT: Effect = Effect::Reads;
    type Input = ReadInput;

    async fn call(&self, call: Call, input: ReadInput) -> Result<Output, ToolError> {
        let ReadInput { path, from, lines } = input;
        if from == 0 || lines == 0 {
            return Err(ToolError::Tell("`from` and `lines` begin at 1".to_owned()));
        }
        let path = file_path(&path)?;
        let file = read_file(&*self.files, &call, &path).await?;
        match self.readable(&call, &path, &file.content).await? {
            ReadableFile::Text { text, note } => {
                let shown = numbered_lines(&path, &text, from, lines.min(MAX_LINES))?;
                Ok(Output::from(note + &shown))
            }
            ReadableFile::ScannedPages(pages) => Ok(shown_pages(&path, &pages)),
        }
    }
}

/// Pages of a scan, as pictures that the model is shown.
fn shown_pages(path: &str, pages: &[PageImage]) -> Output {
    let numbers: Vec<String> = pages.iter().map(|page| page.number.to_string()).collect();
    let all = pages.first().map_or(0, |page| page.pages);
    let note = format!(
        "[`{path}` is a PDF without text, as a scan is: of its {all} pages, these are shown as \
         pictures: {}]\n",
        numbers.join(", ")
    );
    let image =
        |page: &PageImage| Part::Image { media_type: "image/jpeg".into(), data: page.content() };
    Output { parts: pages.iter().map(image).collect(), ..Output::from(note) }
}

fn numbered_lines(
    path: &str,
    content: &str,
    from: usize,
    lines: usize,
) -> Result<String, ToolError> {
    let total = content.lines().count();
    if total == 0 {
        return Ok(format!("`{path}` is empty.\n"));
    }
    if from > total {
        return Err(ToolError::Tell(format!(
            "`{path}` has {total} lines: there is no line {from}"
        )));
    }
    let mut text = String::new();
    let mut last = from - 1;
    for (number, line) in content.lines().enumerate().skip(from - 1).take(lines) {
        let number = number + 1;
        let line = match line.char_indices().nth(MAX_LINE_CHARS) {
            Some((at, _)) => {
                let more = line[at..].chars().count();
                format!("{number:>6}\t{} [{more} more characters]\n", &line[..at])
            }
            None => format!("{number:>6}\t{line}\n"),
        };
        if last >= from && text.len() + line.len() > MAX_SHOWN_BYTES {
            break;
        }
        text.push_str(&line);
        last = number;
    }
    if last < total {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "[lines {from} to {last} of {total}; go on with `\"from\": {}`]",
            last + 1
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crate::files::fake::{ask, files, refused};

    #[tokio::test]
    async fn lines_are_numbered_and_a_part_says_where_to_go_on() {
        let (call, files, tools) = files();
        files.put(&call, "a.md", "one\ntwo\r\nthree\n");

        let all = ask(&tools, &call, "read", r#"{"path":"./a.md"}"#).await;
        let part = ask(&tools, &call, "read", r#"{"path":"a.md","from":2,"lines":1}"#).await;
        let other = ask(&tools, &call, "read_file", r#"{"file_path":"a.md","range":"2-2"}"#).await;

        assert_eq!(all, "     1\tone\n     2\ttwo\n     3\tthree\n");
        assert_eq!(part, "     2\ttwo\n[lines 2 to 2 of 3; go on with `\"from\": 3`]\n");
        assert_eq!(other, part);
    }

    #[tokio::test]
    async fn a_long_file_is_read_to_its_end_in_parts() {
        let (call, files, tools) = files();
        let lines: String =
            (1..=5000).map(|n| format!("line {n} {}\n", "x".repeat(n % 60))).collect();
        files.put(&call, "long", lines.clone());

        let mut read = String::new();
        let mut from = 1;
        loop {
            let part =
                ask(&tools, &call, "read", &format!(r#"{{"path":"long","from":{from}}}"#)).await;
            assert!(part.len() < crate::MAX_OUTPUT_BYTES && !part.contains("[cut off"));
            let shown = part.lines().filter_map(|line| line.split_once('\t'));
            shown.for_each(|(_, line)| read.push_str(&format!("{line}\n")));
            let Some((_, next)) = part.rsplit_once("`\"from\": ") else { break };
            from = next.trim_end_matches("`]\n").parse::<usize>().unwrap();
        }

        assert_eq!(read, lines);
    }

    #[tokio::test]
    async fn a_long_line_says_how_much_was_left_out() {
        let (call, files, tools) = files();
        files.put(&call, "wide", "語".repeat(2003));

        let read = ask(&tools, &call, "read", r#"{"path":"wide"}"#).await;

        assert!(read.ends_with("語 [3 more characters]\n"), "{read}");
    }

    #[tokio::test]
    async fn a_text_is_read_in_any_encoding_and_the_answer_names_it() {
        let (call, files, tools) = files();
        let (gbk, _, _) = encoding_rs::GBK.encode("姓名,电话\n张三,123\n");
        files.put(&call, "gbk.csv", gbk.into_owned());
        let utf16 = [0xfeff].into_iter().chain("姓名\t电话".encode_utf16());
        files.put(&call, "wide.txt", utf16.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
        files.put(&call, "marked.txt", "\u{feff}Größe\n");

        assert_eq!(
            ask(&tools, &call, "read", r#"{"path":"gbk.csv"}"#).await,
            "[`gbk.csv` is in GBK; `edit` and `apply_patch` keep that]\n     1\t姓名,电话\n     \
             2\t张三,123\n"
        );
        assert_eq!(
            ask(&tools, &call, "read", r#"{"path":"wide.txt"}"#).await,
            "[`wide.txt` is in UTF-16LE; `edit` and `apply_patch` keep that]\n     1\t姓名\t电话\n"
        );
        assert_eq!(ask(&tools, &call, "read", r#"{"path":"marked.txt"}"#).await, "     1\tGröße\n");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_told_with_the_reason() {
        let (call, files, tools) = files();
        files.put(&call, "empty", "");
        files.put(&call, "picture", [0xff, 0xd8, 0xff]);
        files.put(&call, "phone.heic", b"\0\0\0\x18ftypheic\0\0\0\0");
        files.put(&call, "program", b"\x7fELF\0\x80");
        files.put(&call, "huge", vec![b'a'; super::super::MAX_READ_BYTES + 1]);
        files.put(&call, "a", "one\n");

        assert_eq!(ask(&tools, &call, "read", r#"{"path":"empty"}"#).await, "`empty` is empty.\n");
        for (input, told) in [
            (r#"{"path":"b"}"#, "there is no file `b`; `list_files` shows those there are"),
            (
                r#"{"path":"picture"}"#,
                "`picture` is an image: have its text recognised (OCR) first, or give its text; \
                 the tool `image` looks at it",
            ),
            (
                r#"{"path":"phone.heic"}"#,
                "`phone.heic` is a picture of a kind that cannot be shown here: have it sent as \
                 JPEG or PNG",
            ),
            (
                r#"{"path":"huge"}"#,
                "`huge` has 10485761 bytes, and 10485760 are the most that is read",
            ),
            (r#"{"path":"a","from":2}"#, "`a` has 1 lines: there is no line 2"),
            (r#"{"path":"a","from":0}"#, "`from` and `lines` begin at 1"),
            (r#"{"path":"../a"}"#, "`../a` is no path here: it may not go up with `..`"),
        ] {
            assert_eq!(refused(&tools, &call, "read", input).await, told);
        }
        let told = refused(&tools, &call, "read", r#"{"path":"program"}"#).await;
        assert!(told.starts_with("`program` is binary data of an unknown kind"), "{told}");
    }
}
