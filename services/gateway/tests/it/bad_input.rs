//! The gateway answers invalid input with an error, and goes on.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_proto::gateway::v1::{FollowRequest, SendRequest, messages_client::MessagesClient};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    foreign::raw,
    world::{World, done, message},
};

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn post(world: &World, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
    let response = world.post(&world.anna, path).body(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_with_what_is_wrong() {
    let world = World::start().await.unwrap();
    let huge = vec![b' '; 28 * 1024 * 1024 + 1];
    let cases: [(Vec<u8>, u16, &str); 7] = [
        (huge, 413, "more than 29360128 bytes"),
        (b"{\"model\": \"\xff\"}".to_vec(), 400, "not UTF-8 from byte 11 on"),
        (b"{\"model\": ".to_vec(), 400, "is no JSON"),
        (b"".to_vec(), 400, "is no JSON"),
        (b"7".to_vec(), 400, "not what it should be"),
        (b"{\"messages\": 7}".to_vec(), 400, "not what it should be"),
        (b"{\"messages\": []}".to_vec(), 400, "`model` is missing"),
    ];
    for (body, status, told) in cases {
        for path in ["/v1/chat/completions", "/v1/responses"] {
            let (got, answer) = post(&world, path, body.clone()).await;

            let message = answer["error"]["message"].as_str().unwrap();
            // The first error depends on the format.
            if path == "/v1/chat/completions" {
                assert!(message.contains(told), "{message}");
            }
            assert_eq!(got, status, "{message}");
            assert!(answer["error"]["type"].is_string());
        }
    }
    world.say(&world.anna, "after", "still there").await.unwrap();
}

#[tokio::test]
async fn each_response_has_a_request_id_and_each_refusal_a_reason() {
    let world = World::start().await.unwrap();
    let mut client = world.messages().await.unwrap();
    let accepted = client.send(world.anna.request(message("hi"))).await.unwrap();
    let refused = world.send(&world.anna, message("")).await.unwrap_err();
    let made = refused.metadata().get("x-request-id").unwrap().to_str().unwrap().to_owned();
    assert_eq!(made.len(), 32, "{made}");
    assert_ne!(accepted.metadata().get("x-request-id").unwrap(), made.as_str());
    // As `google.rpc.ErrorInfo`.
    let reason = |status: &tonic::Status| String::from_utf8_lossy(status.details()).into_owned();
    assert!(reason(&refused).contains("\u{7}INVALID"), "{:?}", reason(&refused));
    let unknown = client.send(world.anna.by("hf_a_b").request(message("hi"))).await.unwrap_err();
    assert!(unknown.metadata().contains_key("x-request-id"));
    assert!(reason(&unknown).contains("KEY_UNKNOWN"), "{:?}", reason(&unknown));

    let response = world.get(&world.anna, "/v1/models").send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"].len(), 32);

    let metrics = reqwest::get(world.url("/metrics")).await.unwrap().text().await.unwrap();
    for method in ["/holdfast.gateway.v1.Messages/Send", "/v1/models"] {
        let count = format!("method=\"{method}\"");
        assert!(metrics.contains(&count), "no durations of {method}");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_taken_is_refused_at_both_doors() {
    let world = World::start().await.unwrap();
    let long = "x".repeat(256 * 1024 + 1);
    for (text, told) in [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("\u{1b}\u{7}", "is empty"),
        ("a\0b", "NUL"),
        (long.as_str(), "262144 is the most"),
    ] {
        let by_grpc = world.send(&world.anna, message(text)).await.unwrap_err();
        let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": text}]});
        let (status, by_http) = post(&world, "/v1/chat/completions", body.to_string()).await;

        assert_eq!(by_grpc.code(), Code::InvalidArgument);
        assert!(by_grpc.message().contains(told), "{}", by_grpc.message());
        assert_eq!(status, 400);
        assert!(by_http["error"]["message"].as_str().unwrap().contains(told), "{by_http}");
    }
}

#[tokio::test]
async fn control_characters_go_and_a_long_word_stays() {
    let world = World::start().await.unwrap();
    let word = "x".repeat(10_000);

    let cleaned = world.stream(&world.anna, message("a\u{1b}[31mb\tc\r\nd")).await.unwrap();
    let long = world.stream(&world.anna, message(&word)).await.unwrap();
    let emoji = world.say(&world.anna, "e", "🙂 \u{202e}abc 日本").await.unwrap();

    assert_eq!(done(&cleaned).text, "echo: a[31mb\tc\nd");
    assert_eq!(done(&long).text, format!("echo: {word}"));
    assert_eq!(emoji["choices"][0]["message"]["content"], "echo: 🙂 \u{202e}abc 日本");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_named() {
    let world = World::start().await.unwrap();

    let by_grpc = SendRequest { agent: "nobody".into(), ..message("hi") };
    let by_grpc = world.send(&world.anna, by_grpc).await.unwrap_err();
    let by_key = SendRequest { session: "agent:nobody:main".into(), ..message("hi") };
    let by_key = world.send(&world.anna, by_key).await.unwrap_err();

    for refused in [by_grpc, by_key] {
        assert_eq!(refused.code(), Code::NotFound);
        assert!(refused.message().contains("`nobody`"), "{}", refused.message());
    }
    for model in ["gpt-5", "holdfast/nobody", "holdfast/", "holdfastx", "HOLDFAST", "holdfast/语"]
    {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let (status, answer) = post(&world, "/v1/chat/completions", body.to_string()).await;

        assert_eq!(status, 404, "{model}");
        assert_eq!(answer["error"]["code"], "model_not_found");
    }
}

#[tokio::test]
async fn ids_and_names_that_cannot_be_are_refused() {
    let world = World::start().await.unwrap();
    let long = "x".repeat(600);
    for (session, code) in [
        ("ses_7", Code::InvalidArgument),
        ("agent:main", Code::InvalidArgument),
        (long.as_str(), Code::InvalidArgument),
        ("ses_00000000000000000000000000000000", Code::NotFound),
    ] {
        let request = SendRequest { session: session.to_owned(), ..message("hi") };
        let refused = world.send(&world.anna, request).await.unwrap_err();

        assert_eq!(refused.code(), code, "{session}: {}", refused.message());
        assert!(refused.message().len() < 300);
    }
    for request_id in ["x".repeat(257), "a\0b".to_owned()] {
        let request = SendRequest { request_id, ..message("hi") };
        let refused = world.send(&world.anna, request).await.unwrap_err();

        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    let mut client = world.messages().await.unwrap();
    for (id, code) in [
        ("", Code::InvalidArgument),
        ("msg_x", Code::InvalidArgument),
        ("msg_00000000000000000000000000000000", Code::NotFound),
    ] {
        let request = world.anna.request(FollowRequest { message_id: id.to_owned() });
        assert_eq!(client.follow(request).await.unwrap_err().code(), code, "{id}");
    }
}

#[tokio::test]
async fn what_an_openai_client_cannot_have_is_refused_by_name() {
    let world = World::start().await.unwrap();
    for (extra, told) in [
        (json!({"tools": [{"type": "function"}]}), "a function needs a `name`"),
        (json!({"n": 2}), "`n`"),
        (json!({"messages": []}), "no message"),
        (json!({"messages": [{"role": "assistant", "content": "x"}]}), "the user's"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "image_url"),
    ] {
        let mut body =
            json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in extra.as_object().unwrap() {
            body[key] = value.clone();
        }
        let (status, answer) = post(&world, "/v1/chat/completions", body.to_string()).await;

        assert_eq!(status, 400, "{extra}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(told), "{answer}");
    }
}

#[tokio::test]
async fn what_is_not_followed_is_named_in_the_response() {
    let world = World::start().await.unwrap();
    let said = json!([{"role": "user", "content": "hi"}]);
    for (path, body, expected) in [
        (
            "/v1/chat/completions",
            json!({"messages": said, "store": true, "metadata": {"a": "b"}, "top_k": 4}),
            Some("metadata, store, top_k"),
        ),
        (
            "/v1/responses",
            json!({"input": "hi", "tools": [{"type": "web_search"}], "text": {"verbosity": "low"}}),
            Some("text.verbosity, tools.web_search"),
        ),
        ("/v1/chat/completions", json!({"messages": said, "temperature": 1}), None),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            (body["model"], body["stream"]) = ("holdfast".into(), stream.into());

            let response = world.post(&world.anna, path).json(&body).send().await.unwrap();

            assert_eq!(response.status(), 200, "{body}");
            let named = response.headers().get("x-holdfast-ignored");
            assert_eq!(named.map(|names| names.to_str().unwrap()), expected, "{body}");
        }
    }
}

#[tokio::test]
async fn a_picture_may_be_as_large_as_over_grpc() {
    let world = World::start().await.unwrap();
    // A PNG with what a camera adds to it.
    let mut picture = STANDARD.decode(PIXEL).unwrap();
    picture.resize(3 * 1024 * 1024, 0);
    let url = format!("data:image/png;base64,{}", STANDARD.encode(picture));
    let content = json!([
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": url}},
    ]);
    let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": content}]});

    let (status, answer) = post(&world, "/v1/chat/completions", body.to_string()).await;

    assert_eq!(status, 200, "{answer}");
}

#[tokio::test]
async fn a_message_that_is_no_json_rpc_is_told_so() {
    let world = World::start().await.unwrap();
    for (body, code) in [("{\"jsonrpc\": ", -32_700), ("{\"id\": 7}", -32_600)] {
        let response = world.post(&world.anna, "/mcp").header("content-type", "application/json");
        let response = response.header("accept", "application/json, text/event-stream");
        let response = response.body(body).send().await.unwrap();

        assert_eq!(response.status(), 400, "{body}");
        let told = response.json::<Value>().await.unwrap();
        assert_eq!(told["error"]["code"], code, "{told}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_are_the_caller_s_fault() {
    let world = World::start().await.unwrap();

    let refused = raw::call(&world, &world.anna, "Messages/Send", vec![0xff; 5]).await.unwrap_err();

    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[tokio::test]
async fn an_unknown_path_and_a_wrong_method_are_told_in_json() {
    let world = World::start().await.unwrap();

    let nowhere = world.get(&world.anna, "/v2/nothing").send().await.unwrap();
    let wrong = world.get(&world.anna, "/v1/chat/completions").send().await.unwrap();

    assert_eq!(nowhere.status(), 404);
    assert_eq!(nowhere.json::<Value>().await.unwrap()["error"]["code"], "unknown_url");
    assert_eq!(wrong.status(), 405);
    let wrong = wrong.json::<Value>().await.unwrap();
    assert_eq!(wrong["error"]["code"], "method_not_allowed");
    let message = wrong["error"]["message"].as_str().unwrap();
    assert_eq!(message, "`/v1/chat/completions` does not take `GET`: use `POST`");
    let no_text = world.get(&world.anna, "/v1/models/%00%ff").send().await.unwrap();
    assert_eq!(no_text.status(), 400);
    assert_eq!(no_text.json::<Value>().await.unwrap()["error"]["param"], "model");
}

#[tokio::test]
async fn nul_in_any_text_is_cleaned_or_refused() {
    let world = World::start().await.unwrap();
    let said = |content: &str| json!([{"role": "user", "content": content}]);
    let earlier = json!([
        {"role": "system", "content": "be\0brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "t\0wo"},
        {"role": "user", "content": "three"},
    ]);
    for body in [
        json!({"model": "holdfast", "messages": said("hi"), "user": "a\0b"}),
        json!({"model": "holdfast/a\0b", "messages": said("hi")}),
        json!({"model": "holdfast", "messages": earlier}),
        json!({"model": "holdfast", "input": "hi", "previous_response_id": "resp_\0"}),
    ] {
        for path in ["/v1/chat/completions", "/v1/responses"] {
            let (status, answer) = post(&world, path, body.to_string()).await;

            assert!(status < 500, "{path} {body}: {answer}");
        }
    }
    for request in [
        SendRequest { agent: "a\0b".into(), ..message("hi") },
        SendRequest { session: "agent:main:\0".into(), ..message("hi") },
    ] {
        let refused = world.send(&world.anna, request).await.unwrap_err();

        assert!(matches!(refused.code(), Code::InvalidArgument | Code::NotFound), "{refused}");
    }
}

#[tokio::test]
async fn a_grpc_call_of_the_http_port_is_told_the_port_of_grpc() {
    let world = World::start().await.unwrap();
    let channel = tonic::transport::Endpoint::from_shared(world.url("")).unwrap();
    let mut client = MessagesClient::new(channel.connect().await.unwrap());

    let refused = client.send(world.anna.request(message("hi"))).await.unwrap_err();

    assert_eq!(refused.code(), Code::InvalidArgument);
    let port = world.grpc.port().to_string();
    assert!(refused.message().contains("HTTP port"), "{refused:?}");
    assert!(refused.message().ends_with(&format!("port {port}")), "{refused:?}");
}
