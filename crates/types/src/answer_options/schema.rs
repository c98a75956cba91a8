//! JSON schemas of answers: the keywords that OpenAI's structured outputs have, and some that usual
//! generators of schemas write.
//!
//! Other keywords go to the provider and are not checked here: pydantic and zod write some for ordinary
//! types. `format` is an annotation, as in JSON Schema itself. A `pattern` is checked in linear time; one
//! with a look-around or a back-reference is not.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum size of a schema, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Maximum depth of a schema, and of references that are followed without descending.
const MAX_DEPTH: usize = 64;

/// Maximum number of comparisons of a value with a schema: references can multiply them.
const MAX_STEPS: u32 = 200_000;

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1024;

/// Maximum length of a rule in an error.
const MAX_SHOWN_CHARS: usize = 100;

/// Schema whose known keywords have the right values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct AnswerSchema(Value);

/// A schema that cannot be used; the text tells what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSchema(String);

impl AnswerSchema {
    #[must_use]
    pub const fn as_value(&self) -> &Value {
        &self.0
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, and where.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let checker = Checker {
            root: &self.0,
            steps: Cell::new(MAX_STEPS),
            patterns: RefCell::new(HashMap::new()),
        };
        checker.check(&self.0, value, "$", 0)
    }
}

impl From<AnswerSchema> for Value {
    fn from(schema: AnswerSchema) -> Self {
        schema.0
    }
}

impl TryFrom<Value> for AnswerSchema {
    type Error = InvalidSchema;

    fn try_from(schema: Value) -> Result<Self, InvalidSchema> {
        if schema.to_string().len() > MAX_BYTES {
            return Err(InvalidSchema(format!(
                "the schema has more than {MAX_BYTES} bytes: make it smaller"
            )));
        }
        if !schema.is_object() {
            return Err(InvalidSchema("the schema is no object".to_owned()));
        }
        read(&schema, &schema, "$", 0)?;
        Ok(Self(schema))
    }
}

/// Checks that the known keywords of a schema have values of the right type.
fn read(root: &Value, schema: &Value, at: &str, depth: usize) -> Result<(), InvalidSchema> {
    let refuse = |what: String| Err(InvalidSchema(format!("the schema at `{at}` {what}")));
    if depth > MAX_DEPTH {
        return refuse(format!("is deeper than {MAX_DEPTH} levels"));
    }
    let fields = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(fields) => fields,
        _ => return refuse("is neither an object nor a boolean".to_owned()),
    };
    for (keyword, value) in fields {
        let inner = |name: &str| format!("{at}/{keyword}/{name}");
        let is_right = match keyword.as_str() {
            "type" => match value {
                Value::String(name) => is_type_name(name),
                Value::Array(names) => {
                    names.iter().all(|name| name.as_str().is_some_and(is_type_name))
                }
                _ => false,
            },
            "enum" | "required" => value.is_array(),
            "const" => true,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
            "multipleOf" => value.as_f64().is_some_and(|step| step > 0.0),
            "minItems" | "maxItems" | "minLength" | "maxLength" => value.is_u64(),
            "$ref" => value.as_str().is_some_and(|target| resolve(root, target).is_some()),
            "properties" | "$defs" | "definitions" => {
                let Some(all) = value.as_object() else {
                    return refuse(format!("has a `{keyword}` that is no object"));
                };
                for (name, one) in all {
                    read(root, one, &inner(name), depth + 1)?;
                }
                true
            }
            "pattern" => value.is_string(),
            "anyOf" | "allOf" | "oneOf" | "prefixItems" => {
                let Some(all) = value.as_array().filter(|all| !all.is_empty()) else {
                    return refuse(format!("has a `{keyword}` that is no list of schemas"));
                };
                for (n, one) in all.iter().enumerate() {
                    read(root, one, &inner(&n.to_string()), depth + 1)?;
                }
                true
            }
            "items" | "additionalProperties" => {
                read(root, value, &format!("{at}/{keyword}"), depth + 1)?;
                true
            }
            _ => true,
        };
        if !is_right {
            return refuse(format!("has a `{keyword}` with a wrong value"));
        }
    }
    Ok(())
}

fn is_type_name(name: &str) -> bool {
    ["object", "array", "string", "number", "integer", "boolean", "null"].contains(&name)
}

/// Schema that a reference within this schema names.
fn resolve<'s>(root: &'s Value, target: &str) -> Option<&'s Value> {
    let path = target.strip_prefix('#')?;
    // Other places may hold values instead of schemas.
    let is_schema = ["/$defs/", "/definitions/", "/properties/"];
    let is_schema = path.is_empty() || is_schema.iter().any(|place| path.starts_with(place));
    root.pointer(path).filter(|_| is_schema)
}

struct Checker<'s> {
    root: &'s Value,
    /// Comparisons that are left.
    steps: Cell<u32>,
    /// Compiled patterns; `None` for one that cannot be checked.
    patterns: RefCell<HashMap<String, Option<Regex>>>,
}

impl Checker<'_> {
    /// `depth` counts schemas that are applied to the same value or within it.
    fn check(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(false) => return Err(format!("`{at}` must not be there")),
            _ => return Ok(()),
        };
        let steps = self.steps.get();
        if depth > 4 * MAX_DEPTH || steps == 0 {
            return Err(format!("`{at}` takes too long to check"));
        }
        self.steps.set(steps - 1);
        for (keyword, rule) in fields {
            self.check_keyword(fields, keyword, rule, value, at, depth)?;
        }
        Ok(())
    }

    fn check_keyword(
        &self,
        fields: &Map<String, Value>,
        keyword: &str,
        rule: &Value,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<(), String> {
        let fits = |schema: &Value| self.check(schema, value, at, depth + 1);
        let holds = |is_so: bool| match is_so {
            true => Ok(()),
            false => Err(format!("`{at}` breaks `{keyword}`{}", shown(rule))),
        };
        match keyword {
            "type" => holds(match rule {
                Value::Array(names) => {
                    names.iter().filter_map(Value::as_str).any(|name| has_type(value, name))
                }
                rule => rule.as_str().is_some_and(|name| has_type(value, name)),
            }),
            "enum" => holds(rule.as_array().into_iter().flatten().any(|one| is_equal(one, value))),
            "const" => holds(is_equal(rule, value)),
            "pattern" => holds(self.matches(rule, value)),
            "required" => {
                let Some(object) = value.as_object() else { return Ok(()) };
                let mut names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                let missing = names.find(|name| !object.contains_key(*name));
                missing.map_or(Ok(()), |name| Err(format!("`{at}` lacks `{name}`")))
            }
            "properties" | "additionalProperties" => {
                let named = fields.get("properties").and_then(Value::as_object);
                // Patterns of names are not checked, so what no property names may be one of theirs.
                if keyword == "additionalProperties" && fields.contains_key("patternProperties") {
                    return Ok(());
                }
                let schema = |name: &str| match (named.and_then(|named| named.get(name)), keyword) {
                    (own, "properties") => own,
                    (own, _) => Some(rule).filter(|_| own.is_none()),
                };
                self.check_properties(schema, value, at, depth)
            }
            "items" => {
                let first = fields.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                self.check_items(|n| (n >= first).then_some(rule), value, at, depth)
            }
            "prefixItems" => {
                let rules = rule.as_array().map_or(&[][..], Vec::as_slice);
                self.check_items(|n| rules.get(n), value, at, depth)
            }
            "$ref" => match rule.as_str().and_then(|target| resolve(self.root, target)) {
                Some(schema) => fits(schema),
                None => Ok(()),
            },
            "allOf" => rule.as_array().into_iter().flatten().try_for_each(fits),
            "anyOf" => holds(rule.as_array().into_iter().flatten().any(|one| fits(one).is_ok())),
            "oneOf" => {
                let fitting = rule.as_array().into_iter().flatten().filter(|one| fits(one).is_ok());
                holds(fitting.count() == 1)
            }
            keyword => holds(keeps_bound(keyword, rule, value)),
        }
    }

    /// Whether a text has a match of the pattern, or the pattern cannot be checked in linear time.
    fn matches(&self, pattern: &Value, text: &Value) -> bool {
        let (Some(pattern), Some(text)) = (pattern.as_str(), text.as_str()) else { return true };
        let mut patterns = self.patterns.borrow_mut();
        let compiled = patterns.entry(pattern.to_owned()).or_insert_with(|| {
            RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build().ok()
        });
        compiled.as_ref().is_none_or(|compiled| compiled.is_match(text))
    }

    /// Checks the items of a list for which there is a schema, by their place.
    fn check_items<'s>(
        &self,
        schema_of: impl Fn(usize) -> Option<&'s Value>,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<(), String> {
        for (n, one) in value.as_array().into_iter().flatten().enumerate() {
            if let Some(schema) = schema_of(n) {
                self.check(schema, one, &format!("{at}[{n}]"), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Checks the fields of an object for which there is a schema.
    fn check_properties<'s>(
        &self,
        schema_of: impl Fn(&str) -> Option<&'s Value>,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<(), String> {
        for (name, one) in value.as_object().into_iter().flatten() {
            if let Some(schema) = schema_of(name) {
                self.check(schema, one, &format!("{at}.{name}"), depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Whether a value keeps a bound on numbers or lengths; `true` if the keyword is none.
fn keeps_bound(keyword: &str, rule: &Value, value: &Value) -> bool {
    let number = |is_so: fn(f64, f64) -> bool| match (value.as_f64(), rule.as_f64()) {
        (Some(value), Some(rule)) => is_so(value, rule),
        _ => true,
    };
    let length = |length: Option<usize>, is_so: fn(u64, u64) -> bool| match (
        length.and_then(|length| u64::try_from(length).ok()),
        rule.as_u64(),
    ) {
        (Some(length), Some(rule)) => is_so(length, rule),
        _ => true,
    };
    let chars = || value.as_str().map(|text| text.chars().count());
    let items = || value.as_array().map(Vec::len);
    match keyword {
        "minimum" => number(|value, rule| value >= rule),
        "maximum" => number(|value, rule| value <= rule),
        "exclusiveMinimum" => number(|value, rule| value > rule),
        "exclusiveMaximum" => number(|value, rule| value < rule),
        "multipleOf" => number(|value, rule| {
            let times = value / rule;
            (times - times.round()).abs() < 1e-9
        }),
        "minLength" => length(chars(), |length, rule| length >= rule),
        "maxLength" => length(chars(), |length, rule| length <= rule),
        "minItems" => length(items(), |length, rule| length >= rule),
        "maxItems" => length(items(), |length, rule| length <= rule),
        _ => true,
    }
}

/// A rule in an error: short ones only, since an error may be one of many that are dropped.
fn shown(rule: &Value) -> String {
    match rule {
        Value::String(text) => {
            let text: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            format!(": {text:?}")
        }
        Value::Bool(_) | Value::Number(_) | Value::Null => format!(": {rule}"),
        Value::Array(_) | Value::Object(_) => String::new(),
    }
}

/// Whether two values are equal: numbers by their value, so that 1 is 1.0.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has_equal = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|other| is_equal(value, other))
            };
            one.len() == other.len() && one.iter().all(has_equal)
        }
        (one, other) => one == other,
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // A number such as 3.0 is an integer too.
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema(value: Value) -> AnswerSchema {
        AnswerSchema::try_from(value).unwrap()
    }

    #[test]
    fn a_value_is_held_against_every_keyword() {
        for (rule, right, wrong) in [
            (json!({"type": "integer"}), json!(3.0), json!(3.5)),
            (json!({"type": ["string", "null"]}), json!(null), json!(1)),
            (json!({"enum": ["a", "b"]}), json!("b"), json!("c")),
            (json!({"const": 1}), json!(1), json!(2)),
            (json!({"minimum": 2, "maximum": 3}), json!(2), json!(4)),
            (json!({"exclusiveMinimum": 2}), json!(3), json!(2)),
            (json!({"exclusiveMaximum": 2}), json!(1), json!(2)),
            (json!({"multipleOf": 0.1}), json!(0.3), json!(0.35)),
            (json!({"pattern": "^a+$"}), json!("aa"), json!("ab")),
            (json!({"prefixItems": [{"type": "string"}]}), json!(["a", 1]), json!([1])),
            (
                json!({"prefixItems": [{"type": "string"}], "items": false}),
                json!(["a"]),
                json!(["a", "b"]),
            ),
            (json!({"minLength": 2}), json!("äö"), json!("ä")),
            (json!({"maxLength": 1}), json!("ä"), json!("äö")),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (json!({"maxItems": 1}), json!([1]), json!([1, 2])),
            (json!({"items": {"type": "string"}}), json!(["a"]), json!(["a", 1])),
            (json!({"required": ["a"]}), json!({"a": 1}), json!({"b": 1})),
            (json!({"properties": {"a": {"type": "null"}}}), json!({"b": 1}), json!({"a": 1})),
            (
                json!({"properties": {"a": true}, "additionalProperties": false}),
                json!({"a": 1}),
                json!({"a": 1, "b": 2}),
            ),
            (json!({"anyOf": [{"const": 1}, {"const": 2}]}), json!(2), json!(3)),
            (json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}), json!(2), json!(3)),
            (json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}), json!(1), json!(3)),
            (
                json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["v"]}}}),
                json!({"v": 1, "next": {"v": 2}}),
                json!({"v": 1, "next": {}}),
            ),
        ] {
            assert!(jsonschema::is_valid(&rule, &right), "{rule}: {right}");
            assert!(!jsonschema::is_valid(&rule, &wrong), "{rule}: {wrong}");
            let rule = schema(rule);

            assert_eq!(rule.check(&right), Ok(()), "{rule:?}");
            assert!(rule.check(&wrong).is_err(), "{rule:?}: {wrong}");
        }
    }

    #[test]
    fn what_generators_of_schemas_write_is_taken() {
        let written = json!({
            "type": "object",
            "properties": {
                "price": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}]},
                "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2, "type": "array"},
                "pet": {"discriminator": {"propertyName": "kind"}, "oneOf": [{"properties": {"kind": {"const": "cat"}}}]},
                "scores": {"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": {"type": "number"}},
                "other": {"patternProperties": {"^x": {}}, "additionalProperties": false, "not": {"type": "null"}},
            },
        });
        let value = json!({
            "price": "1.50", "pair": [1, "a"], "pet": {"kind": "cat"}, "scores": {"a": 1},
            "other": {"x": 1},
        });

        assert_eq!(schema(written).check(&value), Ok(()));
    }

    #[test]
    fn a_pattern_that_would_grow_is_not_compiled() {
        let grows = json!({"pattern": "((a{100}){100}){100}"});

        assert_eq!(schema(grows).check(&json!("b")), Ok(()));
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        let deep = (0..100).fold(json!(true), |inner, _| json!({ "items": inner }));
        for (refused, told) in [
            (json!([]), "no object"),
            (json!({"pattern": 1}), "`pattern`"),
            (json!({"properties": {"a": {"prefixItems": []}}}), "`$/properties/a`"),
            (json!({"type": "text"}), "`type`"),
            (json!({"$ref": "#/$defs/none"}), "`$ref`"),
            (json!({"$ref": "https://example.com"}), "`$ref`"),
            (json!({"anyOf": []}), "`anyOf`"),
            (json!({"items": 3}), "neither"),
            (json!({"title": "x".repeat(MAX_BYTES)}), "bytes"),
            (deep, "deeper"),
        ] {
            let error = AnswerSchema::try_from(refused).unwrap_err();

            assert!(error.to_string().contains(told), "{told}: {error}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            (-2_i64..4).prop_map(Value::from),
            (-4_i64..8).prop_map(|halves| json!(halves as f64 / 2.0)),
            "[aä]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| json!(map)),
            ]
        })
    }

    fn schemas() -> impl Strategy<Value = Value> {
        const TYPES: [&str; 7] =
            ["object", "array", "string", "number", "integer", "boolean", "null"];
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            prop::sample::select(&TYPES[..]).prop_map(|name| json!({ "type": name })),
            values().prop_map(|value| json!({ "const": value })),
            prop::collection::vec(values(), 1..3).prop_map(|all| json!({ "enum": all })),
            (0_u64..3, 0_u64..3).prop_map(|(min, max)| json!({"minLength": min, "maxItems": max})),
            (0_u64..3, 0_u64..3).prop_map(|(min, max)| json!({"minItems": min, "maxLength": max})),
            (-2_i64..3, -2_i64..3).prop_map(|(a, b)| json!({"minimum": a, "exclusiveMaximum": b})),
            Just(json!({"multipleOf": 0.5, "maximum": 2, "exclusiveMinimum": -1})),
            Just(json!({"required": ["a"]})),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let several = prop::collection::vec(inner.clone(), 1..3);
            prop_oneof![
                several.clone().prop_map(|all| json!({ "anyOf": all })),
                several.clone().prop_map(|all| json!({ "allOf": all })),
                several.prop_map(|all| json!({ "oneOf": all })),
                inner.clone().prop_map(|one| json!({ "items": one })),
                (inner.clone(), inner).prop_map(
                    |(a, rest)| json!({"properties": {"a": a}, "additionalProperties": rest})
                ),
            ]
        })
    }

    proptest! {
        /// The crate `jsonschema` is the reference: decision 0091 says why it is not used itself.
        #[test]
        fn a_value_is_valid_exactly_where_json_schema_says_so(
            rule in schemas(),
            value in values(),
        ) {
            let rule = json!({"allOf": [rule]});
            let expected = jsonschema::is_valid(&rule, &value);

            prop_assert_eq!(schema(rule).check(&value).is_ok(), expected);
        }
    }

    #[test]
    fn a_schema_whose_references_multiply_is_given_up() {
        let two = |next: &str| json!({"anyOf": [{"$ref": next}, {"$ref": next}]});
        let mut definitions: Map<String, Value> =
            (0..40).map(|n| (format!("d{n}"), two(&format!("#/$defs/d{}", n + 1)))).collect();
        definitions.insert("d40".to_owned(), json!({"type": "string"}));
        let rule = schema(json!({"$ref": "#/$defs/d0", "$defs": definitions}));

        assert!(rule.check(&json!(7)).is_err());
    }

    #[test]
    fn a_reference_to_itself_ends() {
        for looped in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})] {
            assert!(schema(looped).check(&json!(1)).is_err());
        }
    }
}
