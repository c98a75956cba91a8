//! Pictures and files of a turn: what tools show, what people are told at once, what goes with an
//! answer, what is done on a channel besides.

use holdfast_directory::{Actor, NewAccount, NewProvider, ProviderKind};
use holdfast_session::{Acceptance, NewMessage};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_tools::{Call, Output, Part, Tool, ToolError};
use holdfast_types::{AccountId, Body, Effect, Entry, Target};
use serde_json::{Value, json};

use crate::world::{World, place};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n a picture";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Looks at something, and brings a picture of it; tells the person what it does.
struct Camera;

impl Tool<Output> for Camera {
    const NAME: &'static str = "camera";
    const EFFECT: Effect = Effect::Reads;
    type Input = Nothing;

    async fn call(&self, _: Call, _: Nothing) -> Result<Output, ToolError> {
        let image = Part::Image { media_type: "image/png".into(), data: PNG.to_vec() };
        let output = Output { for_user: Some("Smile!".to_owned()), ..Output::from("taken") };
        Ok(output.with(image))
    }
}

/// Brings a picture that is wider than any vendor takes.
struct WideCamera;

impl Tool<Output> for WideCamera {
    const NAME: &'static str = "wide_camera";
    const EFFECT: Effect = Effect::Reads;
    type Input = Nothing;

    async fn call(&self, _: Call, _: Nothing) -> Result<Output, ToolError> {
        let mut data = std::io::Cursor::new(Vec::new());
        image::DynamicImage::new_rgb8(9_000, 90)
            .write_to(&mut data, image::ImageFormat::Png)
            .map_err(|error| ToolError::Broken(error.into()))?;
        let image = Part::Image { media_type: "image/png".into(), data: data.into_inner() };
        Ok(Output::from("taken").with(image))
    }
}

/// The model sees pictures: its id is one of the catalogue's.
pub(crate) async fn use_seeing_model(world: &World) -> anyhow::Result<()> {
    let provider = NewProvider {
        name: "openai".to_owned(),
        kind: ProviderKind::OpenAi,
        base_url: world.model.url(),
        api_key: Some("key".into()),
        default_model: Some("openai:gpt-4o".to_owned()),
        ..NewProvider::default()
    };
    world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
    world.change_agent(|agent| agent.model = Some("openai:gpt-4o".to_owned())).await?;
    Ok(())
}

async fn telegram(world: &World) -> anyhow::Result<AccountId> {
    let account = NewAccount {
        channel: "telegram".to_owned(),
        name: "bot".to_owned(),
        enabled: true,
        settings: json!({}),
        secrets: Some(json!({ "token": "1:a" })),
    };
    Ok(world.directory.accounts().create(world.tenant, Actor::Operator, account).await?.id)
}

async fn say_at(world: &World, target: Target) -> anyhow::Result<Acceptance> {
    let body = Body { message_id: Some("41".to_owned()), ..Body::text("hello") };
    let message = NewMessage { target: Some(target), body, ..world.message("s", "") };
    world.send(message).await
}

async fn returned(world: &World, sent: &Acceptance) -> anyhow::Result<Vec<String>> {
    let journal = world.journal(sent.session).await?;
    Ok(journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect())
}

/// Deliveries in order: text and action.
async fn deliveries(world: &World) -> anyhow::Result<Vec<(String, Value)>> {
    let sql = "select jsonb_build_array(body, act)::text from session.deliveries order by out_seq";
    let rows = world.texts(sql).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

#[tokio::test]
async fn a_picture_that_a_tool_brings_is_kept_and_shown_to_a_model_that_sees() -> anyhow::Result<()>
{
    let world = World::start().await?;
    use_seeing_model(&world).await?;
    let _runner = world.runner_with(world.config(), |app| app.with_tool(Camera)).await?;
    world.model.queue([Reply::call("a", "camera", "{}"), Reply::text("a cat")]);

    let sent = world.say("s", "look").await?;
    assert_eq!(world.text(&sent).await?, "a cat");
    world.model.queue([Reply::text("still a cat")]);
    world.ask("s", "and now?").await?;

    let output = returned(&world, &sent).await?.remove(0);
    assert!(output.starts_with("taken\n[kept as `media/"), "{output}");
    for request in &world.model.requests()[1..] {
        let shown = request.body.to_string();
        assert!(shown.contains("data:image/png;base64,iVBORw0KGgog"), "{shown}");
    }
    let journal = serde_json::to_string(&world.journal(sent.session).await?)?;
    assert!(!journal.contains("iVBORw0KGgog"), "the journal holds a picture");
    Ok(())
}

#[tokio::test]
async fn a_model_is_shown_a_smaller_copy_of_a_picture_that_is_too_large() -> anyhow::Result<()> {
    let world = World::start().await?;
    use_seeing_model(&world).await?;
    let _runner = world.runner_with(world.config(), |app| app.with_tool(WideCamera)).await?;
    world.model.queue([Reply::call("a", "wide_camera", "{}"), Reply::text("a wall")]);

    world.ask("s", "look").await?;

    let requests = world.model.requests();
    let parts = requests[1].messages().iter().filter_map(|message| message["content"].as_array());
    let url = parts.flatten().find_map(|part| part["image_url"]["url"].as_str()).unwrap();
    let (_, data) = url.split_once("data:image/png;base64,").unwrap();
    let content = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data)?;
    let shown = image::load_from_memory(&content)?;
    assert_eq!((shown.width(), shown.height()), (2_000, 20));
    Ok(())
}

#[tokio::test]
async fn a_model_that_sees_nothing_is_told_that_there_was_a_picture() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(world.config(), |app| app.with_tool(Camera)).await?;
    world.model.queue([Reply::call("a", "camera", "{}"), Reply::text("a cat")]);

    world.ask("s", "look").await?;

    let asked = world.model.requests()[1].body.to_string();
    assert!(asked.contains("[kept as `media/") && !asked.contains("base64"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn the_person_is_told_at_once_and_before_the_answer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(world.config(), |app| app.with_tool(Camera)).await?;
    let looked = Gate::default();
    world.model.queue([Reply::call("a", "camera", "{}"), Reply::text("done").behind(&looked)]);

    let sent = say_at(&world, place("7")).await?;
    world
        .until("it is told", async || deliveries(&world).await.is_ok_and(|told| !told.is_empty()))
        .await?;
    assert_eq!(deliveries(&world).await?, [("Smile!".to_owned(), Value::Null)]);
    looked.open();
    world.text(&sent).await?;

    let told = deliveries(&world).await?;
    assert_eq!(told.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), ["Smile!", "done"]);
    Ok(())
}

#[tokio::test]
async fn a_file_goes_after_the_answer_and_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let account = telegram(&world).await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "write", r#"{"path":"may.csv","content":"1,2"}"#),
        Reply::calls([
            ("b", "send_file", r#"{"path":"may.csv"}"#),
            ("c", "send_file", r#"{"path":"may.csv"}"#),
        ]),
        Reply::text("here it is"),
    ]);

    let sent = say_at(&world, Target { account, ..place("7") }).await?;
    world.text(&sent).await?;

    let sent = deliveries(&world).await?;
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[0], ("here it is".to_owned(), Value::Null));
    assert_eq!(
        (&sent[1].1["act"], &sent[1].1["file"]["path"]),
        (&json!("media"), &json!("may.csv"))
    );
    Ok(())
}

#[tokio::test]
async fn where_no_file_can_be_sent_the_model_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "write", r#"{"path":"may.csv","content":"1,2"}"#),
        Reply::call("b", "send_file", r#"{"path":"may.csv"}"#),
        Reply::text("it is at may.csv"),
    ]);

    let sent = world.say("s", "send it").await?;
    world.text(&sent).await?;

    assert!(
        returned(&world, &sent).await?[1].starts_with("this conversation is held on no channel")
    );
    Ok(())
}

#[tokio::test]
async fn a_reaction_is_to_the_message_that_is_answered_and_is_no_answer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let account = telegram(&world).await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::calls([
            ("a", "message", r#"{"action":"react","emoji":"👍"}"#),
            ("b", "message", r#"{"action":"pin","message_id":"3"}"#),
            ("c", "message", r#"{"action":"event","text":"tea"}"#),
        ]),
        Reply::text("done"),
    ]);

    let sent = say_at(&world, Target { account, ..place("7") }).await?;
    world.text(&sent).await?;

    assert_eq!(
        deliveries(&world).await?,
        [
            (String::new(), json!({"act": "react", "message": "41", "emoji": "👍"})),
            (String::new(), json!({"act": "pin", "message": "3"})),
            ("done".to_owned(), Value::Null),
        ]
    );
    assert_eq!(
        returned(&world, &sent).await?[2],
        "it may not be sent: `telegram` cannot do `event`; it can: send, media, react, delete, \
         pin, unpin, poll, thread"
    );
    Ok(())
}

#[tokio::test]
async fn files_that_a_message_carries_go_with_it_and_the_answer_is_not_said_again()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let account = telegram(&world).await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "write", r#"{"path":"a.csv","content":"1"}"#),
        Reply::call("b", "message", r#"{"text":"look","attachments":["a.csv"],"reply_to":"41"}"#),
        Reply::text("I sent it"),
    ]);

    let sent = say_at(&world, Target { account, ..place("7") }).await?;
    world.text(&sent).await?;

    let told = deliveries(&world).await?;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0.as_str(), &told[0].1["file"]["path"]), ("look", &json!("a.csv")));
    assert_eq!(world.texts("select target->>'reply_to' from session.deliveries").await?, ["41"]);
    Ok(())
}

#[tokio::test]
async fn a_program_that_understands_texts_only_is_sent_no_file() -> anyhow::Result<()> {
    let world = World::start().await?;
    let account = NewAccount {
        channel: "webhook".to_owned(),
        name: "program".to_owned(),
        enabled: true,
        settings: json!({}),
        secrets: Some(json!({ "secret": "0123456789abcdef" })),
    };
    let account =
        world.directory.accounts().create(world.tenant, Actor::Operator, account).await?.id;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "write", r#"{"path":"may.csv","content":"1,2"}"#),
        Reply::call("b", "send_file", r#"{"path":"may.csv"}"#),
        Reply::call("c", "message", r#"{"text":"x","attachments":["may.csv"]}"#),
        Reply::text("it is at may.csv"),
    ]);

    let there = Target { channel: "webhook".to_owned(), account, ..place("anna") };
    let sent = say_at(&world, there).await?;
    world.text(&sent).await?;

    let said = returned(&world, &sent).await?;
    assert!(said[1].starts_with("this conversation is held on no channel"), "{said:?}");
    assert_eq!(said[2], "it may not be sent: `webhook` cannot do `media`; it can: send");
    assert_eq!(deliveries(&world).await?, [("it is at may.csv".to_owned(), Value::Null)]);
    Ok(())
}
