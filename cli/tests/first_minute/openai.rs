//! Clients of OpenAI's API.

use holdfast_testkit::{FakeModel, Reply};
use serde_json::{Value, json};

use crate::installation::Installation;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_asks_of_the_model_reaches_it_and_shapes_the_answer() -> anyhow::Result<()> {
    holdfast_kit::tls::install_crypto();
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let state = installation.state();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (http, key) = (text(&state["gateway"]["http"]), text(&state["key"]));
    let root = if http.contains("://") { http } else { format!("http://{http}") };
    let client = reqwest::Client::builder().no_proxy().build()?;
    let ask = async |path: &str, body: Value| -> anyhow::Result<(u16, Value)> {
        let response = client.post(format!("{root}{path}")).bearer_auth(&key).json(&body);
        let response = response.send().await?;
        Ok((response.status().as_u16(), response.json().await?))
    };
    let schema = json!({
        "type": "object",
        "properties": {"capital": {"type": "string"}},
        "required": ["capital"],
        "additionalProperties": false,
    });
    let named = json!({"name": "answer", "schema": schema, "strict": true});

    model.queue([Reply::text("Paris"), Reply::text(r#"{"capital": "Paris"}"#)]);
    let (status, answer) = ask(
        "/v1/chat/completions",
        json!({
            "model": "holdfast",
            "messages": [{"role": "user", "content": "The capital of France?"}],
            "temperature": 0.25,
            "seed": 7,
            "response_format": {"type": "json_schema", "json_schema": named},
        }),
    )
    .await?;

    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["message"]["content"], r#"{"capital": "Paris"}"#, "{answer}");
    let sent = &model.requests()[0].body;
    assert_eq!((&sent["temperature"], &sent["seed"]), (&json!(0.25), &json!(7)));
    assert_eq!(sent["response_format"]["json_schema"]["schema"], schema);

    model.queue([Reply::text("no"), Reply::text("never")]);
    let (status, refused) = ask(
        "/v1/responses",
        json!({
            "model": "holdfast",
            "input": "The capital of Spain?",
            "text": {"format": {"type": "json_object"}},
        }),
    )
    .await?;

    assert_eq!((status, &refused["error"]["code"]), (422, &json!("answer_format")), "{refused}");
    Ok(())
}
