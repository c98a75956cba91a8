//! References to items of earlier answers in the input of a request.
//!
//! Clients whose responses are stored send `{"type": "item_reference", "id": …}` in place of items that they
//! were given; the Vercel AI SDK does so by default. A reference is replaced by the item, as
//! `GET /v1/responses/{id}` shows it.

use std::collections::HashMap;

use holdfast_grpc::Caller;
use serde_json::Value;
use uuid::Uuid;

use super::{
    super::{OpenAi, content::Message},
    object::{ResponseFields, ResponseHead, ResponseObject},
};
use crate::{api_error::ApiError, follow::TurnResult};

/// Maximum number of responses to which one request refers. Each is read from the database.
const MAX_REFERENCED_RESPONSES: usize = 128;

/// Beginning of the ids of messages in the output.
const MESSAGE_PREFIX: &str = "msg_";

/// Beginning of the ids of calls in the output.
const CALL_PREFIX: &str = "fc_";

impl OpenAi {
    /// Replaces references by the items of the caller's earlier responses that they name.
    ///
    /// # Errors
    ///
    /// If there is no such item that the caller may read, or there are references to too many responses.
    pub async fn resolve_references(
        &self,
        caller: &Caller,
        items: &mut Vec<Message>,
    ) -> Result<(), ApiError> {
        let mut outputs: HashMap<Uuid, Vec<Value>> = HashMap::new();
        let mut resolved = Vec::with_capacity(items.len());
        for item in items.drain(..) {
            let Some(id) = item.reference() else {
                resolved.push(item);
                continue;
            };
            let response = response_of(id).ok_or_else(|| unknown_item(id))?;
            if outputs.len() == MAX_REFERENCED_RESPONSES && !outputs.contains_key(&response) {
                let message = format!(
                    "the input refers to items of more than {MAX_REFERENCED_RESPONSES} responses: \
                     send `previous_response_id`, or the items themselves"
                );
                return Err(ApiError::invalid_field("input", message));
            }
            let output = match outputs.remove(&response) {
                Some(output) => output,
                None => self.output_items(caller, response, id).await?,
            };
            let (referenced, output) = take_item(output, id)?;
            outputs.insert(response, output);
            resolved.extend(referenced);
        }
        *items = resolved;
        Ok(())
    }

    /// Output of a response that is complete.
    async fn output_items(
        &self,
        caller: &Caller,
        response: Uuid,
        item: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let name = format!("resp_{}", response.simple());
        let status = self
            .response_status(caller, &name)
            .await
            .map_err(|error| if error.is_not_found() { unknown_item(item) } else { error })?;
        // Deleted responses, and answers of the other APIs, have no fields.
        let is_stored = status.response_fields.is_some();
        let message = status.message;
        let finished = TurnResult::of_status(status)
            .filter(|finished| is_stored && ApiError::of_result(finished).is_none())
            .ok_or_else(|| unknown_item(item))?;
        let fields = ResponseFields::default();
        let frame = ResponseHead { message, options: Box::default(), fields };
        // Strings and numbers can always be written as JSON.
        let mut shown =
            serde_json::to_value(ResponseObject::of_result(&frame, &finished)).unwrap_or_default();
        let Value::Array(items) = shown["output"].take() else { return Ok(Vec::new()) };
        Ok(items)
    }
}

/// Response to which an item of the output belongs, by the item's id.
fn response_of(item: &str) -> Option<Uuid> {
    let rest = item.strip_prefix(MESSAGE_PREFIX).or_else(|| item.strip_prefix(CALL_PREFIX))?;
    let (response, part) = rest.split_once('_')?;
    part.parse::<u32>().ok()?;
    Uuid::try_parse(response).ok()
}

/// Takes an item from the output of its response; returns it and what is left. A stream has each part of
/// the text as a message, of which the response that is read again has one: the first reference to any of
/// them is that one, and further ones add nothing.
fn take_item(mut output: Vec<Value>, id: &str) -> Result<(Option<Message>, Vec<Value>), ApiError> {
    let is_message = id.starts_with(MESSAGE_PREFIX);
    let at = output
        .iter()
        .position(|item| if is_message { item["type"] == "message" } else { item["id"] == id });
    let Some(at) = at else {
        return if is_message { Ok((None, output)) } else { Err(unknown_item(id)) };
    };
    let item = serde_json::from_value(output.remove(at)).map_err(|_| unknown_item(id))?;
    Ok((Some(item), output))
}

fn unknown_item(id: &str) -> ApiError {
    let id: String = id.chars().take(80).collect();
    let message = format!(
        "there is no item `{id}` of a stored response: send the item itself, or \
         `previous_response_id`"
    );
    ApiError::invalid_field("input", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RESPONSE: &str = "01a228949f787263aad197166385eef3";

    #[test]
    fn an_item_tells_its_response() {
        for kind in ["msg", "fc"] {
            let response = response_of(&format!("{kind}_{RESPONSE}_0")).unwrap();
            assert_eq!(response.simple().to_string(), RESPONSE);
        }
        for other in ["", "msg_1_0", "rs_01a228949f787263aad197166385eef3_0"] {
            assert_eq!(response_of(other), None, "{other}");
        }
        assert_eq!(response_of(&format!("msg_{RESPONSE}")), None);
        assert_eq!(response_of(&format!("fc_{RESPONSE}_x")), None);
    }

    #[test]
    fn parts_of_a_text_are_one_message_and_a_call_is_found_once() {
        let (text, call) = (format!("msg_{RESPONSE}_0"), format!("fc_{RESPONSE}_0"));
        let output = vec![
            json!({"id": text, "type": "message", "role": "assistant",
                   "content": [{"type": "output_text", "text": "so"}]}),
            json!({"id": call, "type": "function_call", "call_id": "call_1", "name": "look"}),
        ];

        let (first, output) = take_item(output, &text).unwrap();
        assert!(first.is_some());
        let (second, output) = take_item(output, &format!("msg_{RESPONSE}_1")).unwrap();
        assert!(second.is_none());
        let (call_item, output) = take_item(output, &call).unwrap();
        assert!(call_item.is_some() && output.is_empty());
        assert!(take_item(output, &call).unwrap_err().message().contains(&call));
    }
}
