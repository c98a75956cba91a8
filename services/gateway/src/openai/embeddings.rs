//! `POST /v1/embeddings`: vectors by the embedding model of the memory service.

use axum::{
    Extension, Json,
    extract::{Request, State},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_grpc::Caller;
use holdfast_proto::memory::v1::{EmbedRequest, Vector};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    OpenAi,
    body::read_json,
    ignored_fields::{OtherFields, refuse_others},
};
use crate::{Error, api_error::ApiError};

/// Maximum number of texts of a request, as of the memory service.
const MAX_TEXTS: usize = 256;

/// Maximum size of all texts of a request, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// Estimated bytes of a token: the embedding model counts none.
const BYTES_PER_TOKEN: usize = 4;

/// Name of the model in requests; any other is refused, except the one that answers name.
const MODEL: &str = "holdfast";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EmbeddingsRequest {
    model: Option<String>,
    input: Option<Input>,
    encoding_format: Option<String>,
    dimensions: Option<u64>,
    /// It names nobody, since nothing is stored; one of the wrong type is refused.
    user: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Other(Value),
}

/// Checked request.
#[derive(Debug, PartialEq, Eq)]
struct Texts {
    texts: Vec<String>,
    model: String,
    dimensions: Option<u64>,
    is_base64: bool,
}

/// Handler: one vector for each text.
pub async fn embeddings(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let Texts { texts, model, dimensions, is_base64 } =
        read_json::<EmbeddingsRequest>(&api, request).await?.check()?;
    let Some(memory) = &api.memory else { return Err(Error::NoMemory.into()) };
    let bytes: usize = texts.iter().map(String::len).sum();
    let answer = memory.embed(caller.tenant, EmbedRequest { texts }).await.map_err(Error::from)?;
    if model != MODEL && model != answer.model {
        return Err(ApiError::no_embedding_model(&model, &answer.model));
    }
    if dimensions.is_some_and(|wanted| wanted != u64::from(answer.dimension)) {
        let message = format!(
            "the vectors of this model have {} dimensions: leave `dimensions` out",
            answer.dimension
        );
        return Err(ApiError::unsupported("dimensions", message));
    }
    let data: Vec<Value> = answer
        .vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| {
            let embedding = if is_base64 { as_base64(vector) } else { json!(vector.values) };
            json!({ "object": "embedding", "index": index, "embedding": embedding })
        })
        .collect();
    let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
    Ok(Json(json!({
        "object": "list",
        "data": data,
        "model": answer.model,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

/// Little-endian floats of 32 bits, as OpenAI encodes them.
fn as_base64(vector: &Vector) -> Value {
    let bytes: Vec<u8> = vector.values.iter().flat_map(|value| value.to_le_bytes()).collect();
    STANDARD.encode(bytes).into()
}

impl EmbeddingsRequest {
    fn check(self) -> Result<Texts, ApiError> {
        refuse_others(&self.others)?;
        let invalid = |message: &str| Err(ApiError::invalid_field("input", message));
        let texts = match self.input {
            Some(Input::Text(text)) => vec![text],
            Some(Input::Texts(texts)) => texts,
            Some(Input::Other(Value::Array(items))) if items.iter().any(Value::is_array) => {
                return invalid("tokens are another model's: send texts");
            }
            Some(Input::Other(Value::Array(items))) if items.iter().all(Value::is_number) => {
                return invalid("tokens are another model's: send texts");
            }
            Some(Input::Other(_)) => return invalid("`input` must be a text or a list of texts"),
            None => return invalid("`input` is missing: send a text or a list of texts"),
        };
        if !(1..=MAX_TEXTS).contains(&texts.len()) {
            let message = format!("`input` has {} texts: send 1 to {MAX_TEXTS}", texts.len());
            return Err(ApiError::invalid_field("input", message));
        }
        if texts.iter().any(|text| text.trim().is_empty()) {
            return invalid("a text of `input` is empty");
        }
        if texts.iter().map(String::len).sum::<usize>() > MAX_TEXT_BYTES {
            let message = format!("the texts have more than {MAX_TEXT_BYTES} bytes: send fewer");
            return Err(ApiError::invalid_field("input", message));
        }
        let is_base64 = match self.encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                let message = "`encoding_format` must be `float` or `base64`";
                return Err(ApiError::invalid_field("encoding_format", message));
            }
        };
        let model = self.model.unwrap_or_default();
        if model.is_empty() {
            return Err(ApiError::invalid_field("model", "`model` is missing: write `holdfast`"));
        }
        Ok(Texts { texts, model, dimensions: self.dimensions, is_base64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extra: Value) -> Result<Texts, ApiError> {
        let mut request = json!({"model": "holdfast", "input": "hi"});
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::from_value::<EmbeddingsRequest>(request).unwrap().check()
    }

    #[test]
    fn texts_are_taken_and_tokens_are_not() {
        assert_eq!(check(json!({})).unwrap().texts, ["hi"]);
        let both = check(json!({"input": ["a", "b"], "encoding_format": "base64"})).unwrap();
        assert_eq!((both.texts.len(), both.is_base64), (2, true));
        for extra in [
            json!({"input": [1, 2]}),
            json!({"input": [[1]]}),
            json!({"input": []}),
            json!({"input": ""}),
            json!({"input": {"text": "a"}}),
            json!({"input": vec!["a"; MAX_TEXTS + 1]}),
            json!({"input": "x".repeat(MAX_TEXT_BYTES + 1)}),
            json!({"encoding_format": "int8"}),
            json!({"of_tomorrow": 1}),
            json!({"model": ""}),
        ] {
            let shown: String = extra.to_string().chars().take(60).collect();
            assert!(check(extra).is_err(), "{shown}");
        }
    }

    #[test]
    fn a_vector_is_little_endian_in_base64() {
        let vector = Vector { values: vec![1.0, -2.0] };

        assert_eq!(as_base64(&vector), STANDARD.encode([0, 0, 128, 63, 0, 0, 0, 192]));
    }
}
