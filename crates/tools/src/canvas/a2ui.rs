//! A2UI messages, merged: a surface is stored as the fewest messages that build it.
//!
//! Follows version 0.8 (<https://a2ui.org/reference/messages>): `surfaceUpdate` adds components or
//! replaces those with the same id, `dataModelUpdate` sets the value at a path, `beginRendering`
//! names the root component, `deleteSurface` removes a surface. The set of component types is
//! between the model and the program that draws them; here each component has an id and one type.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Maximum depth of a data model, in steps of a path.
const MAX_DEPTH: usize = 16;

/// Keys of messages; each message has exactly one.
const MESSAGE_KINDS: [&str; 4] =
    ["surfaceUpdate", "dataModelUpdate", "beginRendering", "deleteSurface"];

/// Value keys of a data model's entry; each entry has exactly one.
const VALUE_KEYS: [&str; 4] = ["valueString", "valueNumber", "valueBoolean", "valueMap"];

/// State of a surface, built from messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SurfaceState {
    components: Vec<Value>,
    data: Vec<Value>,
    begin: Option<Map<String, Value>>,
}

/// Surfaces by name; `None` once a surface is deleted.
pub(super) type Surfaces = BTreeMap<String, Option<SurfaceState>>;

impl SurfaceState {
    pub(super) fn read(name: &str, content: &str) -> Result<Self, String> {
        let messages: Vec<Value> = serde_json::from_str(content).map_err(|e| e.to_string())?;
        let mut surfaces = Surfaces::from([(name.to_owned(), None)]);
        apply(&mut surfaces, &messages, name)?;
        Ok(surfaces.remove(name).flatten().unwrap_or_default())
    }

    /// Returns the messages that build the surface.
    pub(super) fn write(&self, name: &str) -> String {
        let mut messages = Vec::new();
        if !self.components.is_empty() {
            let update = json!({"surfaceId": name, "components": self.components});
            messages.push(json!({"surfaceUpdate": update}));
        }
        if !self.data.is_empty() {
            let update = json!({"surfaceId": name, "contents": self.data});
            messages.push(json!({"dataModelUpdate": update}));
        }
        if let Some(begin) = &self.begin {
            let mut begin = begin.clone();
            begin.insert("surfaceId".to_owned(), name.into());
            messages.push(json!({"beginRendering": begin}));
        }
        Value::Array(messages).to_string()
    }
}

/// Applies messages in order; a message that names no surface applies to `usual`.
pub(super) fn apply(
    surfaces: &mut Surfaces,
    messages: &[Value],
    usual: &str,
) -> Result<(), String> {
    for (at, message) in messages.iter().enumerate() {
        let (kind, body) = parts(message).ok_or_else(|| {
            format!("message {at} is none: it has one key of {}", MESSAGE_KINDS.join(", "))
        })?;
        let name = match body.get("surfaceId") {
            None => usual,
            Some(Value::String(name)) => super::surface_name(name)?,
            Some(_) => return Err(format!("message {at}: `surfaceId` is a text")),
        };
        let wrong = |why: String| format!("message {at}, `{kind}`: {why}");
        let surface = surfaces.entry(name.to_owned()).or_default();
        match kind {
            "deleteSurface" => *surface = None,
            "surfaceUpdate" => components(surface.get_or_insert_default(), body).map_err(wrong)?,
            "dataModelUpdate" => data(surface.get_or_insert_default(), body).map_err(wrong)?,
            _ => {
                if !body.get("root").is_some_and(Value::is_string) {
                    return Err(wrong("`root` is missing: name a component".to_owned()));
                }
                let mut begin = body.clone();
                begin.remove("surfaceId");
                surface.get_or_insert_default().begin = Some(begin);
            }
        }
    }
    Ok(())
}

fn parts(message: &Value) -> Option<(&str, &Map<String, Value>)> {
    let message = message.as_object()?;
    let (kind, body) = message.iter().next().filter(|_| message.len() == 1)?;
    let kind = MESSAGE_KINDS.into_iter().find(|known| known == kind)?;
    Some((kind, body.as_object()?))
}

fn components(made: &mut SurfaceState, body: &Map<String, Value>) -> Result<(), String> {
    let all = body.get("components").and_then(Value::as_array);
    for component in all.ok_or("`components` is missing: a list")? {
        let id = component.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.ok_or("each component has an `id`")?;
        let is = component.get("component").and_then(Value::as_object);
        if is.is_none_or(|is| is.len() != 1 || is.values().any(|is| !is.is_object())) {
            return Err(format!(
                "component `{}` has a `component` with one key, its type, as \
                 {{\"Text\": {{\"text\": {{\"literalString\": \"hi\"}}}}}}",
                id.chars().take(64).collect::<String>()
            ));
        }
        match made.components.iter_mut().find(|known| known["id"] == id) {
            Some(known) => *known = component.clone(),
            None => made.components.push(component.clone()),
        }
    }
    Ok(())
}

fn data(made: &mut SurfaceState, body: &Map<String, Value>) -> Result<(), String> {
    let contents = body.get("contents").and_then(Value::as_array);
    let contents = contents.ok_or("`contents` is missing: a list")?;
    check(contents, 0)?;
    let path = match body.get("path") {
        None => "",
        Some(Value::String(path)) => path.as_str(),
        Some(_) => return Err("`path` is a text".to_owned()),
    };
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    if steps.len() > MAX_DEPTH {
        return Err(format!("a `path` has {MAX_DEPTH} steps at most"));
    }
    let Some(last) = steps.last() else {
        // An empty path replaces the whole model.
        made.data = contents.clone();
        return Ok(());
    };
    // A single entry with the key `.` is the value itself.
    let mut entry = match contents.as_slice() {
        [one] if one["key"] == "." => one.clone(),
        _ => json!({"valueMap": contents}),
    };
    entry["key"] = (*last).into();
    set(&mut made.data, &steps, entry);
    Ok(())
}

/// Sets the value at a path. Values on the path that are not maps become maps.
fn set(level: &mut Vec<Value>, steps: &[&str], entry: Value) {
    let Some((first, rest)) = steps.split_first() else { return };
    let at = level.iter().position(|known| known["key"] == *first);
    let entry = match rest {
        [] => entry,
        rest => {
            let map = at.and_then(|at| level[at]["valueMap"].as_array());
            let mut map = map.cloned().unwrap_or_default();
            set(&mut map, rest, entry);
            json!({"key": first, "valueMap": map})
        }
    };
    match at {
        Some(at) => level[at] = entry,
        None => level.push(entry),
    }
}

fn check(contents: &[Value], depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("a `valueMap` is {MAX_DEPTH} deep at most"));
    }
    for entry in contents {
        let key = entry.get("key").and_then(Value::as_str);
        let key = key.ok_or("each entry of `contents` has a `key`")?;
        let values: Vec<&str> =
            VALUE_KEYS.into_iter().filter(|name| entry.get(name).is_some()).collect();
        let fits = match values.as_slice() {
            ["valueString"] => entry["valueString"].is_string(),
            ["valueNumber"] => entry["valueNumber"].is_number(),
            ["valueBoolean"] => entry["valueBoolean"].is_boolean(),
            ["valueMap"] => match entry["valueMap"].as_array() {
                Some(map) => {
                    check(map, depth + 1)?;
                    true
                }
                None => false,
            },
            _ => false,
        };
        if !fits {
            let key: String = key.chars().take(64).collect();
            return Err(format!("the entry `{key}` has one of {}", VALUE_KEYS.join(", ")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &str, says: &str) -> Value {
        json!({"id": id, "component": {"Text": {"text": {"literalString": says}}}})
    }

    fn update(components: &[Value]) -> Value {
        json!({"surfaceUpdate": {"surfaceId": "s", "components": components}})
    }

    fn at(path: &str, contents: Value) -> Value {
        json!({"dataModelUpdate": {"surfaceId": "s", "path": path, "contents": contents}})
    }

    fn fold(messages: &[Value]) -> Result<Value, String> {
        let mut surfaces = Surfaces::new();
        apply(&mut surfaces, messages, "main")?;
        let made = surfaces.remove("s").flatten().unwrap_or_default();
        let written = made.write("s");
        assert_eq!(SurfaceState::read("s", &written)?, made, "it reads back");
        Ok(serde_json::from_str(&written).unwrap())
    }

    #[test]
    fn components_are_replaced_by_their_ids_and_what_is_kept_makes_the_same_surface() {
        let begin = json!({"beginRendering": {"surfaceId": "s", "root": "a"}});
        let messages = [
            update(&[text("a", "one"), text("b", "two")]),
            begin.clone(),
            update(&[text("a", "uno")]),
        ];

        let kept = fold(&messages).unwrap();

        assert_eq!(kept, json!([update(&[text("a", "uno"), text("b", "two")]), begin]));
        assert_eq!(fold(&[&messages[..], &messages[..]].concat()).unwrap(), kept);
    }

    #[test]
    fn a_data_model_is_set_at_a_path_or_whole() {
        let name = |name: &str| json!({"key": "name", "valueString": name});
        let one = at(
            "",
            json!([{"key": "user", "valueMap": [name("ada"), {"key": "age", "valueNumber": 7}]}]),
        );
        let contents = |kept: &Value| kept[0]["dataModelUpdate"]["contents"].clone();

        let kept =
            fold(&[one.clone(), at("/user/name", json!([{"key": ".", "valueString": "eve"}]))]);
        let user = contents(&kept.unwrap());
        assert_eq!(
            user,
            json!([{"key": "user", "valueMap": [name("eve"), {"key": "age", "valueNumber": 7}]}])
        );

        let kept = fold(&[one.clone(), at("/user", json!([name("eve")]))]).unwrap();
        assert_eq!(contents(&kept), json!([{"key": "user", "valueMap": [name("eve")]}]));
        let kept = fold(&[one, at("/", json!([name("x")]))]).unwrap();
        assert_eq!(contents(&kept), json!([name("x")]));
        let kept = fold(&[at("/a/b", json!([name("x")]))]).unwrap();
        assert_eq!(
            contents(&kept),
            json!([{"key": "a", "valueMap": [{"key": "b", "valueMap": [name("x")]}]}])
        );
    }

    #[test]
    fn a_surface_that_is_deleted_is_gone_and_may_begin_anew() {
        let gone = json!({"deleteSurface": {"surfaceId": "s"}});

        assert_eq!(fold(&[update(&[text("a", "one")]), gone.clone()]).unwrap(), json!([]));
        let kept = fold(&[update(&[text("a", "one")]), gone, update(&[text("b", "two")])]).unwrap();
        assert_eq!(kept, json!([update(&[text("b", "two")])]));
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_place() {
        for (message, told) in [
            (json!(7), "message 0 is none"),
            (json!({"surfaceUpdate": {}, "deleteSurface": {}}), "message 0 is none"),
            (json!({"eval": {"surfaceId": "s"}}), "message 0 is none"),
            (json!({"surfaceUpdate": {"surfaceId": 7}}), "`surfaceId` is a text"),
            (json!({"surfaceUpdate": {"surfaceId": "a b"}}), "`a b` is no surface's name"),
            (json!({"surfaceUpdate": {"surfaceId": "s"}}), "`components` is missing"),
            (update(&[json!({"component": {"Text": {}}})]), "each component has an `id`"),
            (update(&[json!({"id": "a", "component": {}})]), "component `a` has a `component`"),
            (json!({"beginRendering": {"surfaceId": "s"}}), "`root` is missing"),
            (at("", json!([{"valueString": "x"}])), "has a `key`"),
            (at("", json!([{"key": "a"}])), "the entry `a` has one of"),
            (at("", json!([{"key": "a", "valueNumber": "7"}])), "the entry `a` has one of"),
            (at("", json!([{"key": "a", "valueMap": [{"key": "b"}]}])), "the entry `b`"),
            (at("", json!([{"key": "a", "valueMap": []}, {"key": "b"}])), "the entry `b`"),
            (
                at("", json!([{"key": "a", "valueMap": []}, {"key": "b", "valueMap": [7]}])),
                "has a `key`",
            ),
        ] {
            let refused = fold(std::slice::from_ref(&message)).unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
    }
}
