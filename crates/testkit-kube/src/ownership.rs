//! Ownership of fields: which manager applied or changed which field, and server-side apply.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Part of the path of a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    Field(String),
    /// Item of a list of type `map`: the values of its key fields.
    Keyed(String),
    /// Item of a list of type `set`.
    Member(String),
}

pub type Path = Vec<Segment>;

/// Fields of one manager.
#[derive(Debug, Clone)]
pub struct Manager {
    pub name: String,
    /// Whether the fields were applied; else they were updated.
    pub applies: bool,
    pub subresource: String,
    pub fields: BTreeSet<Path>,
}

/// How the items of a list are told apart.
enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Fields that identify an object, which no manager owns.
const IDENTITY: [&str; 3] = ["apiVersion", "kind", "metadata"];
const OWNED_METADATA: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// Applies a configuration. Returns the new object and its managers.
///
/// # Errors
///
/// The conflicting fields with their managers, unless `force`.
pub fn apply(
    live: &Value,
    managers: &[Manager],
    applied: &Value,
    schema: &Value,
    by: (&str, &str),
    force: bool,
) -> Result<(Value, Vec<Manager>), Vec<String>> {
    let (name, subresource) = by;
    let wanted = leaves(applied, schema);
    let have = leaves(live, schema);
    let is_own = |manager: &Manager| {
        manager.applies && manager.name == name && manager.subresource == subresource
    };
    let mut conflicts = Vec::new();
    for (path, value) in &wanted {
        if have.get(path) == Some(value) {
            continue;
        }
        for manager in managers.iter().filter(|manager| !is_own(manager)) {
            if manager.fields.contains(path) {
                conflicts.push(format!("conflict with \"{}\": {}", manager.name, show(path)));
            }
        }
    }
    if !conflicts.is_empty() && !force {
        return Err(conflicts);
    }

    let mut object = live.clone();
    let mut managers = managers.to_vec();
    let before = managers.iter().find(|manager| is_own(manager));
    let dropped: Vec<Path> = before
        .map(|manager| {
            manager.fields.iter().filter(|path| !wanted.contains_key(*path)).cloned().collect()
        })
        .unwrap_or_default();
    for path in &dropped {
        let is_shared =
            managers.iter().any(|manager| !is_own(manager) && manager.fields.contains(path));
        if !is_shared {
            remove(&mut object, path);
        }
    }
    for (path, value) in &wanted {
        set(&mut object, path, value, schema);
        if have.get(path) != Some(value) {
            for manager in managers.iter_mut().filter(|manager| !is_own(manager)) {
                manager.fields.remove(path);
            }
        }
    }
    managers.retain(|manager| !is_own(manager) && !manager.fields.is_empty());
    managers.push(Manager {
        name: name.to_owned(),
        applies: true,
        subresource: subresource.to_owned(),
        fields: wanted.into_keys().collect(),
    });
    Ok((object, managers))
}

/// Managers after an update that was no apply: the fields that it changed are its own.
pub fn after_update(
    before: &Value,
    after: &Value,
    managers: &[Manager],
    schema: &Value,
    by: (&str, &str),
) -> Vec<Manager> {
    let (had, has) = (leaves(before, schema), leaves(after, schema));
    let changed: BTreeSet<Path> = has
        .iter()
        .filter(|(path, value)| had.get(*path) != Some(*value))
        .map(|(path, _)| path.clone())
        .collect();
    let mut managers = managers.to_vec();
    for manager in &mut managers {
        manager.fields.retain(|path| has.contains_key(path) && !changed.contains(path));
    }
    let (name, subresource) = by;
    let own = managers.iter_mut().find(|manager| {
        !manager.applies && manager.name == name && manager.subresource == subresource
    });
    match own {
        Some(manager) => manager.fields.extend(changed),
        None => managers.push(Manager {
            name: name.to_owned(),
            applies: false,
            subresource: subresource.to_owned(),
            fields: changed,
        }),
    }
    managers.retain(|manager| !manager.fields.is_empty());
    managers
}

/// All fields of an object that a manager can own.
fn leaves(object: &Value, schema: &Value) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if IDENTITY.contains(&name.as_str()) {
            continue;
        }
        let path = vec![Segment::Field(name.clone())];
        collect(value, &schema["properties"][name], path, &mut found);
    }
    for name in OWNED_METADATA {
        if let Some(value) = object["metadata"].get(name) {
            let path = vec![Segment::Field("metadata".to_owned()), Segment::Field(name.to_owned())];
            collect(value, &metadata_schema(name), path, &mut found);
        }
    }
    found
}

fn metadata_schema(name: &str) -> Value {
    match name {
        "finalizers" => serde_json::json!({"x-kubernetes-list-type": "set"}),
        "ownerReferences" => serde_json::json!({
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]
        }),
        _ => Value::Null,
    }
}

fn collect(value: &Value, schema: &Value, path: Path, found: &mut BTreeMap<Path, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let of_field = match &schema["properties"][name] {
                    Value::Null => &schema["additionalProperties"],
                    known => known,
                };
                let path = [&path[..], &[Segment::Field(name.clone())]].concat();
                collect(value, of_field, path, found);
            }
        }
        Value::Array(items) => match list_kind(schema) {
            ListKind::Atomic => {
                found.insert(path, value.clone());
            }
            ListKind::Set => {
                for item in items {
                    let path = [&path[..], &[Segment::Member(item.to_string())]].concat();
                    found.insert(path, item.clone());
                }
            }
            ListKind::Map(keys) => {
                for item in items {
                    let path = [&path[..], &[Segment::Keyed(key_of(item, &keys))]].concat();
                    collect(item, &schema["items"], path, found);
                }
            }
        },
        _ => {
            found.insert(path, value.clone());
        }
    }
}

fn list_kind(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            ListKind::Map(keys.map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

fn key_of(item: &Value, keys: &[String]) -> String {
    let values: Map<String, Value> =
        keys.iter().map(|key| (key.clone(), item[key].clone())).collect();
    Value::Object(values).to_string()
}

fn set(target: &mut Value, path: &[Segment], value: &Value, schema: &Value) {
    let Some((first, rest)) = path.split_first() else {
        *target = value.clone();
        return;
    };
    let of_metadata;
    match first {
        Segment::Field(name) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let of_field = match (&schema["properties"][name], name.as_str()) {
                (Value::Null, "finalizers" | "ownerReferences") => {
                    of_metadata = metadata_schema(name);
                    &of_metadata
                }
                (Value::Null, _) => &schema["additionalProperties"],
                (known, _) => known,
            };
            set(&mut target[name], rest, value, of_field);
        }
        Segment::Member(_) => {
            let items = array(target);
            if !items.contains(value) {
                items.push(value.clone());
            }
        }
        Segment::Keyed(key) => {
            let ListKind::Map(keys) = list_kind(schema) else { return };
            let items = array(target);
            let at = items.iter().position(|item| key_of(item, &keys) == *key);
            let at = at.unwrap_or_else(|| {
                items.push(serde_json::from_str(key).unwrap_or_default());
                items.len() - 1
            });
            set(&mut items[at], rest, value, &schema["items"]);
        }
    }
}

fn remove(target: &mut Value, path: &[Segment]) {
    let Some((first, rest)) = path.split_first() else { return };
    match first {
        Segment::Field(name) => {
            let Some(fields) = target.as_object_mut() else { return };
            if rest.is_empty() {
                fields.remove(name);
            } else if let Some(field) = fields.get_mut(name) {
                remove(field, rest);
                let is_empty = field.as_object().is_some_and(Map::is_empty)
                    || field.as_array().is_some_and(Vec::is_empty);
                if is_empty {
                    fields.remove(name);
                }
            }
        }
        Segment::Member(member) => {
            let member: Value = serde_json::from_str(member).unwrap_or_default();
            array(target).retain(|item| *item != member);
        }
        Segment::Keyed(key) => {
            let Ok(Value::Object(keys)) = serde_json::from_str(key) else { return };
            let items = array(target);
            let at =
                items.iter().position(|item| keys.iter().all(|(name, value)| item[name] == *value));
            let Some(at) = at else { return };
            remove(&mut items[at], rest);
            let left = items[at].as_object().map_or(0, Map::len);
            if left == 0 {
                items.remove(at);
            }
        }
    }
}

fn array(target: &mut Value) -> &mut Vec<Value> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    match target {
        Value::Array(items) => items,
        _ => unreachable!("it was made an array above"),
    }
}

/// A path as Kubernetes writes it: `.spec.model`.
fn show(path: &Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Field(name) => format!(".{name}"),
            Segment::Keyed(key) | Segment::Member(key) => format!("[{key}]"),
        })
        .collect()
}
