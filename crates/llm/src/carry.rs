//! Carried state: what a provider wants back within a turn.
//!
//! Reasoning is signed or encrypted for one model of one API. It is stored with the reply unchanged
//! and sent to the same model only; other models ignore it.

use holdfast_types::{ModelId, ToolCall};
use serde_json::{Value, json};

use crate::reply_builder::MAX_CARRY_BYTES;

/// Packs items for a model of an API. Returns `None` if they are too large to store: the model then
/// continues without them.
pub(crate) fn pack(api: &str, model: &str, items: Vec<Value>) -> Option<Value> {
    if items.is_empty() {
        return None;
    }
    let packed = json!({ "api": api, "model": model, "items": items });
    (packed.to_string().len() <= MAX_CARRY_BYTES).then_some(packed)
}

/// Returns the items that were carried for this model of this API.
pub(crate) fn unpack<'a>(
    carry: Option<&'a Value>,
    api: &str,
    model: &ModelId,
) -> Option<&'a [Value]> {
    let carry = carry?;
    let is_ours = carry["api"] == api && carry["model"] == model.to_string();
    carry["items"].as_array().filter(|_| is_ours).map(Vec::as_slice)
}

/// Item of a part that has none.
static NO_ITEM: Value = Value::Null;

/// Part of a reply, with the carried item that says where it stood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ReplyPart<'r> {
    Text(&'r str, &'r Value),
    Call(&'r ToolCall, &'r Value),
    /// Reasoning, as it was carried.
    Reasoning(&'r Value),
}

/// Returns a reply's parts in the order in which the model wrote them. The carried items hold the lengths
/// of its texts (`text`), the ids of its calls (`call`), and its reasoning between them. What no item
/// names follows: the rest of the text, then calls.
pub(crate) fn reply_parts<'r>(
    text: &'r str,
    calls: &'r [ToolCall],
    carried: &'r [Value],
) -> Vec<ReplyPart<'r>> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut left: Vec<&ToolCall> = calls.iter().collect();
    for item in carried {
        if let Some(length) = item["text"].as_u64() {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let (one, other) = rest.split_at_checked(length).unwrap_or((rest, ""));
            parts.push(ReplyPart::Text(one, item));
            rest = other;
        } else if let Some(id) = item["call"].as_str() {
            let at = left.iter().position(|call| call.id == id);
            parts.extend(at.map(|at| ReplyPart::Call(left.remove(at), item)));
        } else {
            parts.push(ReplyPart::Reasoning(item));
        }
    }
    if !rest.is_empty() {
        parts.push(ReplyPart::Text(rest, &NO_ITEM));
    }
    parts.extend(left.into_iter().map(|call| ReplyPart::Call(call, &NO_ITEM)));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_model_that_wrote_it_reads_it() {
        let (model, other): (ModelId, ModelId) = ("a:m".parse().unwrap(), "a:n".parse().unwrap());
        let packed = pack("x", "a:m", vec![json!(1)]);

        assert_eq!(unpack(packed.as_ref(), "x", &model), Some(&[json!(1)][..]));
        assert_eq!(unpack(packed.as_ref(), "y", &model), None);
        assert_eq!(unpack(packed.as_ref(), "x", &other), None);
        assert_eq!(unpack(Some(&json!("nonsense")), "x", &model), None);
    }

    #[test]
    fn a_replys_parts_are_in_their_order_and_none_is_lost() {
        let call = |id: &str| ToolCall { id: id.into(), tool: "t".into(), input: "{}".into() };
        let calls = [call("a"), call("b")];
        let items = [
            json!({ "type": "thinking" }),
            json!({ "call": "b" }),
            json!({ "text": 3, "signature": "s" }),
            json!({ "call": "gone" }),
            json!({ "text": 99 }),
        ];

        assert_eq!(
            reply_parts("one two", &calls, &items),
            [
                ReplyPart::Reasoning(&items[0]),
                ReplyPart::Call(&calls[1], &items[1]),
                ReplyPart::Text("one", &items[2]),
                ReplyPart::Text(" two", &items[4]),
                ReplyPart::Call(&calls[0], &NO_ITEM),
            ]
        );
        assert_eq!(
            reply_parts("one", &calls[..1], &[]),
            [ReplyPart::Text("one", &NO_ITEM), ReplyPart::Call(&calls[0], &NO_ITEM)]
        );
    }

    #[test]
    fn nothing_and_too_much_are_not_carried() {
        assert_eq!(pack("x", "a:m", vec![]), None);
        assert_eq!(pack("x", "a:m", vec![json!("x".repeat(MAX_CARRY_BYTES))]), None);
    }
}
