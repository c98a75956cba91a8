//! The description of the HTTP API (`services/gateway/openapi.json`), to compare answers with.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// Schema of descriptions, as the OpenAPI initiative publishes it.
const SCHEMA: &str = include_str!("openapi/schema-3.1.json");

const DESCRIPTION: &str = include_str!("../../../services/gateway/openapi.json");

/// Description of an HTTP API in OpenAPI 3.1.
#[derive(Debug)]
pub struct Description(Value);

/// What is compared of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Method and path as the description has them: `get /v1/models/{model}`.
    pub operation: &'a str,
    pub status: u16,
    /// Without parameters such as `charset`; empty if there is no body.
    pub media_type: &'a str,
    pub body: &'a str,
}

impl Description {
    /// The description of Holdfast's HTTP API.
    ///
    /// # Errors
    ///
    /// If it is no JSON, or no valid OpenAPI.
    pub fn read() -> anyhow::Result<Self> {
        Self::parse(DESCRIPTION)
    }

    /// # Errors
    ///
    /// If the text is no JSON, or no valid OpenAPI.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let description: Value = serde_json::from_str(text)?;
        check(&serde_json::from_str(SCHEMA)?, &description).context("it is no OpenAPI 3.1")?;
        let description = Self(description);
        for name in description.0["components"]["schemas"].as_object().into_iter().flatten() {
            let schema = description.resolvable(json!({"$ref": reference(name.0)}));
            jsonschema::validator_for(&schema)
                .map_err(|error| anyhow::anyhow!("schema `{}`: {error}", name.0))?;
        }
        Ok(description)
    }

    /// All operations, as `get /v1/models`.
    #[must_use]
    pub fn operations(&self) -> BTreeSet<String> {
        let paths = self.0["paths"].as_object().into_iter().flatten();
        let operations = paths.flat_map(|(path, item)| {
            let methods = ["get", "put", "post", "delete", "patch"];
            let given = methods.into_iter().filter(|method| item.get(method).is_some());
            given.map(move |method| format!("{method} {path}"))
        });
        operations.collect()
    }

    /// Checks that an answer is one that the description has for its operation.
    ///
    /// # Errors
    ///
    /// If the status, the media type or the body is another.
    pub fn check_answer(&self, answer: &Answer<'_>) -> anyhow::Result<()> {
        let (method, path) = answer.operation.split_once(' ').context("no operation")?;
        let responses = &self.0["paths"][path][method]["responses"];
        let status = answer.status.to_string();
        let family = format!("{}XX", answer.status / 100);
        let response = responses.get(&status).or_else(|| responses.get(&family));
        let response = response.with_context(|| format!("{}: no {status}", answer.operation))?;
        let response = match response["$ref"].as_str() {
            Some(reference) => self.0.pointer(&reference[1..]).context("a dangling reference")?,
            None => response,
        };
        let Some(content) = response.get("content") else {
            ensure!(answer.body.is_empty(), "{}: {status} has a body", answer.operation);
            return Ok(());
        };
        let schema = content.get(answer.media_type);
        let schema = schema.with_context(|| {
            format!("{}: {status} is `{}`", answer.operation, answer.media_type)
        })?;
        let body = match answer.media_type {
            "application/json" => serde_json::from_str(answer.body)?,
            _ => Value::from(answer.body),
        };
        let schema = self.resolvable(schema["schema"].clone());
        check(&schema, &body).with_context(|| format!("{} {status}", answer.operation))
    }

    /// Checks that a value is valid by the schema of this name.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn check_value(&self, schema: &str, value: &Value) -> anyhow::Result<()> {
        check(&self.resolvable(json!({"$ref": reference(schema)})), value)
            .context(schema.to_owned())
    }

    /// The schema with the components that it may refer to.
    fn resolvable(&self, mut schema: Value) -> Value {
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("components".to_owned(), self.0["components"].clone());
        }
        schema
    }
}

fn reference(schema: &str) -> String {
    format!("#/components/schemas/{schema}")
}

fn check(schema: &Value, value: &Value) -> anyhow::Result<()> {
    let validator = jsonschema::validator_for(schema)
        .map_err(|error| anyhow::anyhow!("the schema cannot be used: {error}"))?;
    let problems: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_status_a_missing_field_and_an_invalid_description_are_noticed() {
        let description = Description::read().unwrap();
        let model = r#"{"id": "a", "object": "model", "created": 1, "owned_by": "holdfast", "abilities": []}"#;
        let answer = Answer {
            operation: "get /v1/models/{model}",
            status: 200,
            media_type: "application/json",
            body: model,
        };

        description.check_answer(&answer).unwrap();

        assert!(description.check_answer(&Answer { status: 418, ..answer }).is_err());
        assert!(description.check_answer(&Answer { media_type: "text/html", ..answer }).is_err());
        let less = model.replace(r#""id": "a", "#, "");
        assert!(description.check_answer(&Answer { body: &less, ..answer }).is_err());
        assert!(Description::parse(&DESCRIPTION.replace("\"openapi\"", "\"open\"")).is_err());
    }
}
