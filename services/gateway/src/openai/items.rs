//! Items of Responses and of conversations, and their pages.

use holdfast_session::EntryView;
use holdfast_types::{Body, Entry, Handover, MessageId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_error::ApiError;

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// Part of a list that a client asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Page {
    after: Option<String>,
    limit: Option<usize>,
    order: Option<Order>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    Desc,
}

impl Page {
    /// Shows a part of all items, which are ordered by time.
    pub fn show(&self, mut all: Vec<Value>) -> Result<Value, ApiError> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            let message = format!("`limit` must be from 1 to {MAX_LIMIT}");
            return Err(ApiError::invalid_field("limit", message));
        }
        if self.order != Some(Order::Asc) {
            all.reverse();
        }
        if let Some(after) = &self.after {
            let Some(at) = all.iter().position(|item| item["id"] == after.as_str()) else {
                return Err(ApiError::invalid_field("after", "`after` is no id of an item here"));
            };
            all.drain(..=at);
        }
        let has_more = all.len() > limit;
        all.truncate(limit);
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        let (first, last) = (id(all.first()), id(all.last()));
        Ok(json!({
            "object": "list",
            "data": all,
            "first_id": first,
            "last_id": last,
            "has_more": has_more,
        }))
    }
}

/// Items of a message that a client sent.
pub fn of_message(message: MessageId, body: &Body) -> Vec<Value> {
    let id = message.as_uuid().simple().to_string();
    let calls = body.calls.iter().enumerate().map(|(n, call)| {
        json!({
            "id": format!("fc_{id}_{n}"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.tool,
            "arguments": call.input,
        })
    });
    let results = body.results.iter().enumerate().map(|(n, result)| {
        json!({
            "id": format!("fco_{id}_{n}"),
            "type": "function_call_output",
            "status": "completed",
            "call_id": result.call,
            "output": result.output,
        })
    });
    let role = body.role.as_deref().unwrap_or("user");
    let text = (!body.text.is_empty()).then(|| text_item(&format!("msg_{id}"), role, &body.text));
    text.into_iter().chain(calls).chain(results).collect()
}

/// Items of a conversation.
pub fn of_entries(entries: &[EntryView]) -> Vec<Value> {
    let mut items = Vec::new();
    for view in entries {
        let id = format!("{}_{}", view.run.as_uuid().simple(), view.seq);
        match &view.entry {
            Entry::Heard { body, .. } if body.event.is_none() => {
                let n = items.len();
                items.extend(of_message(view.run.as_uuid().into(), body));
                for (at, item) in items[n..].iter_mut().enumerate() {
                    item["id"] = format!("item_{id}_{at}").into();
                }
            }
            Entry::Thought { text, calls, .. } if calls.is_empty() && !text.is_empty() => {
                items.push(text_item(&format!("msg_{id}"), "assistant", text));
            }
            note @ Entry::Noted { .. } => {
                items.extend(Handover::from_entry(note).into_iter().flat_map(|handover| {
                    handover.calls.into_iter().enumerate().map(|(n, call)| {
                        json!({
                            "id": format!("fc_{id}_{n}"),
                            "type": "function_call",
                            "status": "completed",
                            "call_id": call.id,
                            "name": call.name,
                            "arguments": call.arguments,
                        })
                    })
                }))
            }
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. } => {}
        }
    }
    items
}

fn text_item(id: &str, role: &str, text: &str) -> Value {
    let part = match role {
        "assistant" => json!({ "type": "output_text", "text": text, "annotations": [] }),
        _ => json!({ "type": "input_text", "text": text }),
    };
    json!({ "id": id, "type": "message", "status": "completed", "role": role, "content": [part] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_page_by_page_in_both_orders() {
        let all: Vec<Value> = ["a", "b", "c"].iter().map(|id| json!({ "id": id })).collect();
        let page = |after: Option<&str>, order| Page {
            after: after.map(str::to_owned),
            limit: Some(2),
            order,
        };
        let ids = |page: Page| {
            let shown = page.show(all.clone()).unwrap();
            let data = shown["data"].as_array().unwrap();
            let ids: String = data.iter().map(|item| item["id"].as_str().unwrap()).collect();
            (ids, shown["has_more"] == true)
        };

        assert_eq!(ids(page(None, Some(Order::Asc))), ("ab".to_owned(), true));
        assert_eq!(ids(page(Some("b"), Some(Order::Asc))), ("c".to_owned(), false));
        assert_eq!(ids(page(None, None)), ("cb".to_owned(), true));
        assert!(page(Some("x"), None).show(all.clone()).is_err());
        assert!(Page { limit: Some(0), ..Page::default() }.show(all).is_err());
    }
}
