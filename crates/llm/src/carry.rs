//! Carried state: what a provider wants back within a turn.
//!
//! Reasoning is signed or encrypted for one model of one API. It is stored with the reply unchanged
//! and sent to the same model only; other models ignore it.

use holdfast_types::ModelId;
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
    fn nothing_and_too_much_are_not_carried() {
        assert_eq!(pack("x", "a:m", vec![]), None);
        assert_eq!(pack("x", "a:m", vec![json!("x".repeat(MAX_CARRY_BYTES))]), None);
    }
}
