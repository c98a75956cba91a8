//! Structural schemas: checks of a definition, pruning and validation of objects, CEL rules.

use std::collections::BTreeSet;

use kube_cel::{CompiledSchema, Validator};
use regex::Regex;
use serde_json::{Map, Value};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// What is wrong with the schema of a definition: it is not structural, or a rule is no CEL.
pub fn problems_of_definition(schema: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check_structure(schema, "openAPIV3Schema", &mut problems);
    check_rules(schema, "openAPIV3Schema", &mut problems);
    problems
}

fn check_structure(schema: &Value, at: &str, problems: &mut Vec<String>) {
    let Some(fields) = schema.as_object() else {
        problems.push(format!("{at}: a schema is an object"));
        return;
    };
    for word in ["$ref", "definitions", "dependencies", "uniqueItems", "patternProperties", "id"] {
        if fields.contains_key(word) {
            problems.push(format!("{at}.{word}: Forbidden: not supported"));
        }
    }
    for word in ["anyOf", "oneOf", "allOf", "not"] {
        if fields.contains_key(word) {
            problems.push(format!("{at}.{word}: this server checks no junctors"));
        }
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("object" | "array" | "string" | "integer" | "number" | "boolean") => {}
        Some(other) => problems.push(format!("{at}.type: Unsupported value: \"{other}\"")),
        None if fields.contains_key(PRESERVE) => {}
        None => problems.push(format!("{at}.type: Required value: must not be empty")),
    }
    if fields.contains_key("properties") && fields.contains_key("additionalProperties") {
        problems.push(format!("{at}: properties and additionalProperties are exclusive"));
    }
    if schema["type"] == "array" && !schema["items"].is_object() {
        problems.push(format!("{at}.items: Required value"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && Regex::new(pattern).is_err()
    {
        problems.push(format!("{at}.pattern: Invalid value: \"{pattern}\""));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_structure(property, &format!("{at}.properties[{name}]"), problems);
    }
    if schema["items"].is_object() {
        check_structure(&schema["items"], &format!("{at}.items"), problems);
    }
    if schema["additionalProperties"].is_object() {
        let at = format!("{at}.additionalProperties");
        check_structure(&schema["additionalProperties"], &at, problems);
    }
}

fn check_rules(schema: &Value, at: &str, problems: &mut Vec<String>) {
    let compiled = kube_cel::compile_schema(schema);
    problems.extend(compiled.compilation_errors().iter().map(|error| format!("{at}: {error}")));
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        if rule["message"].as_str().is_none_or(str::is_empty) {
            problems.push(format!("{at}: rule {} has no message", rule["rule"]));
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_rules(property, &format!("{at}.{name}"), problems);
    }
    if schema["items"].is_object() {
        check_rules(&schema["items"], &format!("{at}.items"), problems);
    }
}

/// Removes fields that the schema does not know, and returns their paths.
pub fn prune(value: &mut Value, schema: &Value) -> Vec<String> {
    let mut pruned = Vec::new();
    prune_at(value, schema, "", true, &mut pruned);
    pruned
}

fn prune_at(value: &mut Value, schema: &Value, at: &str, is_root: bool, pruned: &mut Vec<String>) {
    if schema[PRESERVE] == true {
        return;
    }
    match value {
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                // These are checked apart.
                if is_root && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                let path = format!("{at}.{name}");
                let known = &schema["properties"][&name];
                let other = &schema["additionalProperties"];
                if known.is_object() || other.is_object() {
                    let of_field = if known.is_object() { known } else { other };
                    prune_at(&mut fields[&name], of_field, &path, false, pruned);
                } else {
                    fields.remove(&name);
                    pruned.push(path);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(item, &schema["items"], &format!("{at}[{index}]"), false, pruned);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of the schema.
pub fn fill_defaults(value: &mut Value, schema: &Value) {
    if let Some(fields) = value.as_object_mut() {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if !fields.contains_key(name)
                && let Some(default) = property.get("default")
            {
                fields.insert(name.clone(), default.clone());
            }
            if let Some(field) = fields.get_mut(name) {
                fill_defaults(field, property);
            }
        }
    }
    for item in value.as_array_mut().into_iter().flatten() {
        fill_defaults(item, &schema["items"]);
    }
}

/// What is wrong with an object, as the server words it.
pub fn problems_of_object(
    object: &Value,
    old: Option<&Value>,
    schema: &Value,
    rules: &CompiledSchema,
) -> Vec<String> {
    let mut problems = Vec::new();
    validate(object, schema, "", &mut problems);
    if problems.is_empty()
        && let Err(errors) = Validator::new().validate_compiled(rules, object, old)
    {
        let told = |error: &kube_cel::ValidationError| {
            format!("{}: Invalid value: {}", error.field_path, error.message)
        };
        problems.extend(errors.as_slice().iter().map(told));
    }
    problems
}

fn validate(value: &Value, schema: &Value, at: &str, problems: &mut Vec<String>) {
    let mut wrong = |why: String| problems.push(format!("{}: {why}", at.trim_start_matches('.')));
    if value.is_null() {
        if schema["nullable"] != true {
            wrong("Invalid value: \"null\": must not be null".to_owned());
        }
        return;
    }
    let has_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(_) | None => true,
    };
    if !has_type {
        wrong(format!("Invalid value: {value}: must be of type {}", schema["type"]));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong(format!("Unsupported value: {value}: supported values: {:?}", schema["enum"]));
    }
    if let Some(number) = value.as_f64() {
        let is_below = schema["minimum"].as_f64().is_some_and(|least| number < least);
        let is_above = schema["maximum"].as_f64().is_some_and(|most| number > most);
        if is_below || is_above {
            wrong(format!("Invalid value: {value}: out of range"));
        }
    }
    if let Some(text) = value.as_str() {
        let count = text.chars().count() as u64;
        if is_outside(count, &schema["minLength"], &schema["maxLength"]) {
            wrong(format!("Invalid value: {value}: length {count} is out of range"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
        {
            wrong(format!("Invalid value: {value}: should match '{pattern}'"));
        }
    }
    if let Some(items) = value.as_array() {
        validate_items(items, schema, at, problems);
    }
    if let Some(fields) = value.as_object() {
        validate_fields(fields, schema, at, problems);
    }
}

fn validate_items(items: &[Value], schema: &Value, at: &str, problems: &mut Vec<String>) {
    let path = at.trim_start_matches('.');
    if is_outside(items.len() as u64, &schema["minItems"], &schema["maxItems"]) {
        problems.push(format!("{path}: Invalid value: {} items", items.len()));
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
    let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    for item in items {
        let id = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => item.to_string(),
            Some("map") => keys.iter().map(|key| item[key].to_string()).collect(),
            Some(_) | None => continue,
        };
        if !seen.insert(id.clone()) {
            problems.push(format!("{path}: Duplicate value: {id}"));
        }
    }
    for (index, item) in items.iter().enumerate() {
        validate(item, &schema["items"], &format!("{at}[{index}]"), problems);
    }
}

fn validate_fields(
    fields: &Map<String, Value>,
    schema: &Value,
    at: &str,
    problems: &mut Vec<String>,
) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            let path = format!("{at}.{name}");
            problems.push(format!("{}: Required value", path.trim_start_matches('.')));
        }
    }
    for (name, field) in fields {
        let of_field = match &schema["properties"][name] {
            Value::Null => &schema["additionalProperties"],
            known => known,
        };
        if of_field.is_object() {
            validate(field, of_field, &format!("{at}.{name}"), problems);
        }
    }
}

fn is_outside(count: u64, least: &Value, most: &Value) -> bool {
    least.as_u64().is_some_and(|least| count < least)
        || most.as_u64().is_some_and(|most| count > most)
}
