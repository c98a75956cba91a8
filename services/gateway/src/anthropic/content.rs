//! Messages of a request: a text or blocks. They are converted to those of Chat Completions, and
//! checked as these.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api_error::ApiError,
    openai::{ConversationMessage, IgnoredFields, Message},
};

const PARAM: &str = "messages";

/// Beginning of the output of a tool that failed.
const FAILED_PREFIX: &str = "The tool failed: ";

/// Text of a message with the pictures that results of tools have: a result is a text.
const PICTURES_OF_RESULTS: &str = "[pictures of the results above]";

/// Blocks of earlier answers that no model needs again.
const THINKING_BLOCKS: [&str; 2] = ["thinking", "redacted_thinking"];

#[derive(Debug, Deserialize)]
pub struct SentMessage {
    role: String,
    content: Content,
}

/// Instructions of the client.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct SystemPrompt(Content);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

/// Block of a message. Unknown fields, such as `cache_control` and `citations`, are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    /// Of a picture or a document.
    source: Option<Source>,
    /// Of a document or a search result.
    title: Option<String>,
    /// Of a call.
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    /// Of a result.
    tool_use_id: Option<String>,
    content: Option<Content>,
    is_error: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Source {
    #[serde(rename = "type")]
    kind: String,
    media_type: String,
    data: String,
    url: String,
    /// Of a document.
    content: Option<Box<Content>>,
}

/// Texts and pictures, in the order of the blocks.
#[derive(Debug, Default)]
struct ShownBlocks {
    texts: Vec<String>,
    /// Parts of a message of Chat Completions.
    pictures: Vec<Value>,
}

impl SystemPrompt {
    /// Converts the instructions; `None` if they are empty.
    pub fn convert(self) -> Result<Option<ConversationMessage>, ApiError> {
        let shown = ShownBlocks::of(self.0, "system")?;
        let text = shown.text();
        match text.trim().is_empty() {
            true => Ok(None),
            false => message("system", text.into(), &[]).map(Some),
        }
    }
}

impl SentMessage {
    /// Converts the message. One of the user becomes several if it has results of tools.
    pub fn convert(
        self,
        ignored: &mut IgnoredFields,
    ) -> Result<Vec<ConversationMessage>, ApiError> {
        let blocks = self.content.into_blocks();
        match self.role.as_str() {
            "user" => user_messages(blocks),
            "assistant" => assistant_message(blocks, ignored).map(|message| vec![message]),
            "system" => {
                let shown = ShownBlocks::of(Content::Blocks(blocks), PARAM)?;
                Ok(vec![message("system", shown.text().into(), &[])?])
            }
            other => {
                let other: String = other.chars().take(40).collect();
                let message = format!("`{other}` is no role: use user or assistant");
                Err(ApiError::invalid_field(PARAM, message))
            }
        }
    }
}

fn user_messages(blocks: Vec<Block>) -> Result<Vec<ConversationMessage>, ApiError> {
    let (mut messages, mut said, mut of_results) = (Vec::new(), ShownBlocks::default(), Vec::new());
    for block in blocks {
        if block.kind != "tool_result" {
            said.add(block, PARAM)?;
            continue;
        }
        let is_error = block.is_error.unwrap_or_default();
        let content = block.content.unwrap_or(Content::Text(String::new()));
        let mut shown = ShownBlocks::of(content, PARAM)?;
        of_results.append(&mut shown.pictures);
        let prefix = if is_error { FAILED_PREFIX } else { "" };
        let result = json!({
            "role": "tool",
            "tool_call_id": call_id(block.tool_use_id, "tool_use_id")?,
            "content": format!("{prefix}{}", shown.text()),
        });
        messages.push(read(result)?);
    }
    if !of_results.is_empty() {
        said.texts.insert(0, PICTURES_OF_RESULTS.to_owned());
        said.pictures.splice(0..0, of_results);
    }
    if messages.is_empty() || !said.is_empty() {
        messages.push(message("user", said.into_content(), &[])?);
    }
    Ok(messages)
}

fn assistant_message(
    blocks: Vec<Block>,
    ignored: &mut IgnoredFields,
) -> Result<ConversationMessage, ApiError> {
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block.kind.as_str() {
            "text" => texts.extend(block.text),
            "tool_use" => calls.push(json!({
                "id": call_id(block.id, "id")?,
                "type": "function",
                "function": {
                    "name": block.name.unwrap_or_default(),
                    "arguments": block.input.unwrap_or_else(|| json!({})).to_string(),
                },
            })),
            kind if THINKING_BLOCKS.contains(&kind) => {}
            // Calls of another server's own tools in an earlier answer.
            kind => ignored.note(format!("{PARAM}.{kind}")),
        }
    }
    message("assistant", texts.join("\n\n").into(), &calls)
}

impl Content {
    fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) => {
                vec![Block { kind: "text".to_owned(), text: Some(text), ..Block::default() }]
            }
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl ShownBlocks {
    fn of(content: Content, param: &'static str) -> Result<Self, ApiError> {
        let mut shown = Self::default();
        for block in content.into_blocks() {
            shown.add(block, param)?;
        }
        Ok(shown)
    }

    fn is_empty(&self) -> bool {
        self.pictures.is_empty() && self.texts.iter().all(|text| text.is_empty())
    }

    fn text(&self) -> String {
        self.texts.join("\n\n")
    }

    fn add(&mut self, block: Block, param: &'static str) -> Result<(), ApiError> {
        let refuse = |message: String| Err(ApiError::unsupported(param, message));
        let source = block.source.unwrap_or_default();
        match (block.kind.as_str(), source.kind.as_str()) {
            ("text", _) => self.texts.extend(block.text),
            ("image", "base64") => {
                let url = format!("data:{};base64,{}", source.media_type, source.data);
                self.pictures.push(json!({ "type": "image_url", "image_url": { "url": url } }));
            }
            ("image", "url") => {
                let url = source.url;
                self.pictures.push(json!({ "type": "image_url", "image_url": { "url": url } }));
            }
            ("document", "text") => self.add_titled(block.title, source.data),
            ("document", "content") => {
                if let Some(content) = source.content {
                    let mut shown = Self::of(*content, param)?;
                    self.pictures.append(&mut shown.pictures);
                    self.add_titled(block.title, shown.text());
                }
            }
            ("search_result", _) => {
                if let Some(content) = block.content {
                    let shown = Self::of(content, param)?;
                    self.add_titled(block.title, shown.text());
                }
            }
            ("image" | "document", kind) => {
                let kind: String = kind.chars().take(40).collect();
                return refuse(format!(
                    "a block of type `{}` with a source of type `{kind}` is not supported: send a \
                     picture in base64, or the text of a document",
                    block.kind
                ));
            }
            (kind, _) => {
                let kind: String = kind.chars().take(40).collect();
                return refuse(format!("a block of type `{kind}` is not supported: send text"));
            }
        }
        Ok(())
    }

    fn add_titled(&mut self, title: Option<String>, text: String) {
        match title.filter(|title| !title.is_empty()) {
            Some(title) => self.texts.push(format!("{title}\n\n{text}")),
            None => self.texts.push(text),
        }
    }

    /// Content of a message of Chat Completions.
    fn into_content(self) -> Value {
        let text = self.text();
        if self.pictures.is_empty() {
            return text.into();
        }
        [json!({ "type": "text", "text": text })].into_iter().chain(self.pictures).collect()
    }
}

fn call_id(id: Option<String>, field: &str) -> Result<String, ApiError> {
    id.ok_or_else(|| {
        let message = format!("a block with a call or its result has no `{field}`: add it");
        ApiError::invalid_field(PARAM, message)
    })
}

fn message(role: &str, content: Value, calls: &[Value]) -> Result<ConversationMessage, ApiError> {
    let mut message = json!({ "role": role, "content": content });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    read(message)
}

fn read(message: Value) -> Result<ConversationMessage, ApiError> {
    let message: Message = serde_json::from_value(message).map_err(|error| {
        ApiError::invalid_field(PARAM, format!("a message is not what it should be: {error}"))
    })?;
    message.convert(PARAM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::Role;

    fn convert(message: Value) -> Result<Vec<ConversationMessage>, ApiError> {
        let message: SentMessage = serde_json::from_value(message).unwrap();
        message.convert(&mut IgnoredFields::default())
    }

    #[test]
    fn results_come_before_what_the_user_says_and_their_pictures_after_them() {
        let picture = json!({
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        });
        let turns = convert(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "is_error": true,
             "content": [{"type": "text", "text": "2"}, picture]},
            {"type": "tool_result", "tool_use_id": "c"},
            {"type": "text", "text": "go on"},
        ]}))
        .unwrap();

        let outputs: Vec<&str> = turns[..3].iter().map(|turn| &*turn.results[0].output).collect();
        assert_eq!(outputs, ["1", "The tool failed: 2", ""]);
        assert_eq!(turns[3].role, Role::User);
        assert_eq!(turns[3].text, "[pictures of the results above]\n\ngo on");
        assert_eq!((turns[3].pictures.len(), turns.len()), (1, 4));
    }

    #[test]
    fn an_answer_keeps_its_text_and_calls_and_nothing_of_its_thinking() {
        let mut ignored = IgnoredFields::default();
        let message: SentMessage = serde_json::from_value(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "so"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
        ]}))
        .unwrap();

        let turns = message.convert(&mut ignored).unwrap();

        assert_eq!(turns[0].text, "so");
        assert_eq!(turns[0].calls[0].input, r#"{"n":1}"#);
        let [(_, names)] = ignored.header().unwrap();
        assert_eq!(names, "messages.server_tool_use");
    }

    #[test]
    fn a_document_is_read_if_it_is_text() {
        let document = |source: Value| {
            convert(json!({"role": "user", "content": [
                {"type": "document", "title": "T", "source": source},
                {"type": "text", "text": "what is it?"},
            ]}))
        };

        let turns = document(json!({"type": "text", "media_type": "text/plain", "data": "d"}));
        assert_eq!(turns.unwrap()[0].text, "T\n\nd\n\nwhat is it?");
        for source in [
            json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}),
            json!({"type": "url", "url": "https://example.com/a.pdf"}),
            json!({"type": "file", "file_id": "f"}),
        ] {
            assert!(document(source.clone()).is_err(), "{source}");
        }
    }

    #[test]
    fn a_call_or_result_without_an_id_is_refused() {
        let result = json!({"role": "user", "content": [{"type": "tool_result"}]});
        let call = json!({"role": "assistant", "content": [{"type": "tool_use", "name": "a"}]});

        assert!(convert(result).unwrap_err().message().contains("`tool_use_id`"));
        assert!(convert(call).unwrap_err().message().contains("`id`"));
    }
}
