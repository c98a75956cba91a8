//! Result of a tool call.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmcp::model::{Annotations, CallToolResult, ContentBlock, ResourceContents, Role, TextContent};
use serde_json::Value;

use crate::error::shorten;

/// Maximum size of an image or a file, in bytes of base64.
const MAX_BASE64_BYTES: usize = 8 << 20;

/// Result of a tool call. Results of other servers are untrusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResult {
    pub content: Vec<Content>,
    /// Whether the tool reported an error.
    pub failed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    /// Text for the user and not for the model (`audience` is `["user"]`).
    UserText(String),
    Image {
        /// Media type, such as `image/png`.
        media_type: String,
        /// Decoded bytes of the image.
        data: Vec<u8>,
    },
    File {
        /// Last part of the resource's URI.
        name: String,
        /// Media type, such as `application/pdf`.
        media_type: String,
        /// Decoded bytes of the file.
        data: Vec<u8>,
    },
}

impl ToolResult {
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], failed: false }
    }

    /// Error result with a message.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::text(text) }
    }

    pub(crate) fn read(result: CallToolResult) -> Self {
        let failed = result.is_error.unwrap_or_default();
        let mut content: Vec<Content> = result.content.into_iter().map(Content::read).collect();
        // Servers should repeat structured content as text, but not all do.
        if let Some(value) = result.structured_content
            && !content.iter().any(|part| part.repeats(&value))
        {
            content.push(Content::Text(value.to_string()));
        }
        Self { content, failed }
    }

    pub(crate) fn write(self) -> CallToolResult {
        let content = self.content.into_iter().map(|part| match part {
            Content::Text(text) => ContentBlock::text(text),
            Content::Image { media_type, data } => {
                ContentBlock::image(STANDARD.encode(data), media_type)
            }
            Content::UserText(text) => {
                let for_user = Annotations::default().with_audience(vec![Role::User]);
                let mut text = TextContent::new(text);
                text.annotations = Some(for_user);
                ContentBlock::Text(text)
            }
            Content::File { name, media_type, data } => ContentBlock::resource(
                ResourceContents::blob(STANDARD.encode(data), format!("file:///{name}"))
                    .with_mime_type(media_type),
            ),
        });
        match self.failed {
            true => CallToolResult::error(content.collect()),
            false => CallToolResult::success(content.collect()),
        }
    }
}

impl Content {
    /// Whether the model reads this value in the text already.
    fn repeats(&self, value: &Value) -> bool {
        match self {
            Self::Text(text) => {
                serde_json::from_str(text).is_ok_and(|read: Value| read == *value)
                    || text.contains(&value.to_string())
            }
            Self::UserText(_) | Self::Image { .. } | Self::File { .. } => false,
        }
    }

    fn read(block: ContentBlock) -> Self {
        match block {
            ContentBlock::Text(text) => {
                let audience = text.annotations.and_then(|annotations| annotations.audience);
                match audience.is_some_and(|audience| audience == [Role::User]) {
                    true => Self::UserText(text.text),
                    false => Self::Text(text.text),
                }
            }
            ContentBlock::Image(image) => {
                let (size, media_type) = (image.data.len(), image.mime_type);
                let data =
                    (size <= MAX_BASE64_BYTES).then(|| STANDARD.decode(&image.data).ok()).flatten();
                match data.filter(|_| media_type.starts_with("image/") && media_type.len() < 64) {
                    Some(data) => Self::Image { media_type, data },
                    None => Self::Text(format!("[a picture of {size} bytes that cannot be shown]")),
                }
            }
            ContentBlock::Audio(audio) => Self::Text(format!(
                "[a sound, {}, {} bytes of base64, which is not played]",
                shorten(&audio.mime_type),
                audio.data.len()
            )),
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { text, uri, .. } => {
                    Self::Text(format!("[{}]\n{text}", shorten(&uri)))
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    Self::file(&uri, mime_type, &blob)
                }
                _ => Self::Text("[a resource of an unknown kind]".to_owned()),
            },
            ContentBlock::ResourceLink(link) => {
                Self::Text(format!("[{}: {}]", shorten(&link.name), shorten(&link.uri)))
            }
            _ => Self::Text("[a part of an unknown kind]".to_owned()),
        }
    }

    fn file(uri: &str, media_type: Option<String>, blob: &str) -> Self {
        let (name, size) = (shorten(uri.rsplit('/').next().unwrap_or_default()), blob.len());
        let media_type = media_type.map_or_else(String::new, |media_type| shorten(&media_type));
        let data = (size <= MAX_BASE64_BYTES).then(|| STANDARD.decode(blob).ok()).flatten();
        match data {
            Some(data) => Self::File { name, media_type, data },
            None => Self::Text(format!("[{}: {size} bytes, which cannot be read]", shorten(uri))),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(result: serde_json::Value) -> ToolResult {
        ToolResult::read(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn texts_and_pictures_are_taken_and_the_rest_is_told_of() {
        let answer = read(json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": "AAEC", "mimeType": "image/png" },
            { "type": "image", "data": "%", "mimeType": "image/png" },
            { "type": "audio", "data": "AAEC", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "two" } },
            { "type": "resource", "resource": {
                "uri": "a://b/c.pdf", "mimeType": "application/pdf", "blob": "AAEC",
            } },
            { "type": "resource", "resource": { "uri": "a://c", "blob": "%" } },
            { "type": "text", "text": "see", "annotations": { "audience": ["user"] } },
            { "type": "text", "text": "all", "annotations": { "audience": ["user", "assistant"] } },
            { "type": "resource_link", "uri": "a://d", "name": "three" },
        ] }));

        let text = |text: &str| Content::Text(text.to_owned());
        assert_eq!(
            answer.content,
            [
                text("one"),
                Content::Image { media_type: "image/png".to_owned(), data: vec![0, 1, 2] },
                text("[a picture of 1 bytes that cannot be shown]"),
                text("[a sound, audio/wav, 4 bytes of base64, which is not played]"),
                text("[a://b]\ntwo"),
                Content::File {
                    name: "c.pdf".to_owned(),
                    media_type: "application/pdf".to_owned(),
                    data: vec![0, 1, 2],
                },
                text("[a://c: 1 bytes, which cannot be read]"),
                Content::UserText("see".to_owned()),
                text("all"),
                text("[three: a://d]"),
            ]
        );
        assert!(!answer.failed);
    }

    #[test]
    fn what_is_structured_is_told_as_json_unless_the_text_says_it() {
        let answer = read(json!({ "content": [], "structuredContent": { "n": 1 } }));

        assert_eq!(answer, ToolResult::text(r#"{"n":1}"#));
        let both = |text: &str| {
            let text = json!({ "type": "text", "text": text });
            read(json!({ "content": [text], "structuredContent": { "n": 1 }, "isError": true }))
        };
        let told = vec![Content::Text("ok".to_owned()), Content::Text(r#"{"n":1}"#.to_owned())];
        assert_eq!(both("ok"), ToolResult { content: told, failed: true });
        for text in ["{ \"n\": 1 }", r#"It is {"n":1}."#] {
            assert_eq!(both(text), ToolResult::failed(text), "{text}");
        }
    }

    #[test]
    fn an_answer_reads_back() {
        let image = Content::Image { media_type: "image/png".to_owned(), data: vec![1] };
        let file = Content::File {
            name: "a.pdf".to_owned(),
            media_type: "application/pdf".to_owned(),
            data: vec![2],
        };
        let content =
            vec![Content::Text("a".to_owned()), image, Content::UserText("b".to_owned()), file];
        let answer = ToolResult { content, failed: true };

        assert_eq!(ToolResult::read(answer.clone().write()), answer);
    }

    const RESULTS: [&str; 2] = [
        r#"{"content": [{"type": "text", "text": "done", "annotations": {"audience": ["user"]}}, {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}], "isError": false}"#,
        r#"{"content": [{"type": "resource", "resource": {"uri": "file:///a/b", "mimeType": "text/plain", "text": "x"}}, {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA"}}, {"type": "resource_link", "uri": "x:y", "name": "n"}], "structuredContent": {"a": 1}}"#,
    ];

    proptest! {
        #[test]
        fn any_result_of_a_server_is_read(result in mutated_json(&RESULTS)) {
            if let Ok(result) = serde_json::from_str::<CallToolResult>(&result) {
                let failed = result.is_error.unwrap_or_default();
                prop_assert_eq!(ToolResult::read(result).failed, failed);
            }
        }
    }
}
