//! Files of every kind that people attach: what the model is shown of each, and what `read` returns.

use std::{collections::BTreeMap, path::Path};

use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_types::{Attachment, Body, Entry, StoredFile};
use holdfast_workspace::{ChangeAuthor, NewMedia};
use serde::Deserialize;
use serde_json::json;

use crate::{media::use_seeing_model, world::World};

/// File that a real program wrote (crates/documents/testdata/README.md).
fn testdata(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/documents/testdata");
    std::fs::read(folder.join(name)).unwrap()
}

/// What `expected.json` says of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expected {
    /// Texts that are read, in this order.
    text: Vec<String>,
    /// The same in the source of a page.
    raw: Vec<String>,
    refused: Option<String>,
    empty: bool,
    picture: Option<String>,
    pages: Option<usize>,
}

/// What the model was given of an attached file.
#[derive(Debug)]
struct Shown {
    /// Request with the message.
    prompt: String,
    /// Request after the call of `read`; empty if nothing was stored.
    later: String,
    /// Result of `read`.
    output: String,
}

/// Stores a file as the gateway does. An empty one is only named.
async fn store(world: &World, session: &str, name: &str) -> anyhow::Result<Option<StoredFile>> {
    let content = testdata(name);
    if content.is_empty() {
        return Ok(None);
    }
    let media = NewMedia { name: name.to_owned(), content };
    let by = ChangeAuthor::new("test", "came");
    let folder = format!("people/api={session}");
    let (tenant, agent) = (world.tenant, world.agent.id);
    Ok(world.workspaces.store_media(tenant, agent, Some(&folder), &by, vec![media]).await?.pop())
}

/// Sends a message with this file attached, which the model reads from a line on.
async fn show(world: &World, name: &str, from: u32) -> anyhow::Result<Shown> {
    let session = format!("s-{}", name.replace('.', "-"));
    let file = store(world, &session, name).await?;
    let call = file.as_ref().map(|file| {
        let input = json!({ "path": file.path, "from": from });
        Reply::call("a", "read", input.to_string())
    });
    world.model.queue(call.into_iter().chain([Reply::text("done")]).collect::<Vec<_>>());
    let before = world.model.requests().len();
    let attachment = Attachment {
        kind: "file".into(),
        reference: "r".into(),
        name: name.to_owned(),
        file,
        transcription: None,
    };
    let body = Body { attachments: vec![attachment], ..Body::text("look") };
    let sent = world.send(NewMessage { body, ..world.message(&session, "") }).await?;
    world.text(&sent).await?;
    let output = world.journal(sent.session).await?.into_iter().find_map(|entry| match entry {
        Entry::Returned { output, .. } => Some(output),
        _ => None,
    });
    let requests = world.model.requests();
    let request = |at: usize| requests.get(before + at).map(|request| request.body.to_string());
    Ok(Shown {
        prompt: request(0).unwrap_or_default(),
        later: request(1).unwrap_or_default(),
        output: output.unwrap_or_default(),
    })
}

fn count_pictures(request: &str) -> usize {
    request.matches("data:image/").count()
}

/// What is wrong with what the model was given; empty if nothing is.
fn difference(name: &str, expected: &Expected, shown: &Shown) -> Vec<String> {
    let Shown { prompt, later, output } = shown;
    let mut wrong = Vec::new();
    let mut check = |is_right: bool, what: &str| {
        if !is_right {
            wrong.push(format!("{name}: {what}: {output}"));
        }
    };
    check(prompt.contains(&format!("[attached: file {name}")), "the prompt does not name it");
    let is_seen = expected.picture.as_deref() == Some("shown");
    check(count_pictures(prompt) == usize::from(is_seen), "wrong pictures in the prompt");
    check(
        count_pictures(later) == usize::from(is_seen) + expected.pages.unwrap_or_default(),
        "wrong pictures after the call",
    );
    let refusal = match expected {
        Expected { refused: Some(reason), .. } => Some(reason.as_str()),
        Expected { picture: Some(_), .. } if is_seen => Some("the tool `image` looks at it"),
        Expected { picture: Some(_), .. } => Some("of a kind that cannot be shown here"),
        Expected { pages: Some(0), .. } => Some("is a PDF without text, as a scan is: have"),
        Expected { pages: Some(_), .. } => Some("these are shown as pictures: "),
        Expected { .. } => None,
    };
    if let Some(refusal) = refusal {
        check(output.contains(refusal), "wrong reason");
    }
    if expected.picture.is_some() && !is_seen {
        let note = "pictures of its kind cannot be shown here";
        check(prompt.contains(note), "the prompt does not say that it is not shown");
    }
    check(output.is_empty() == expected.empty, "wrong call");
    // Each line stands after its number and a tab.
    let lines = output.lines().filter_map(|line| line.split_once('\t')).map(|(_, line)| line);
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut rest = text.as_str();
    let parts = if expected.raw.is_empty() { &expected.text } else { &expected.raw };
    for part in parts {
        match rest.find(part.as_str()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => check(false, &format!("no `{part}`")),
        }
    }
    wrong
}

#[tokio::test]
async fn files_of_every_kind_are_shown_to_the_model_or_refused_with_what_to_do()
-> anyhow::Result<()> {
    let world = World::start().await?;
    use_seeing_model(&world).await?;
    let reader = env!("CARGO_BIN_EXE_agent-runner-child");
    let config = world.config();
    let _runner = world.runner_with(config, |app| app.with_document_reader(reader.into())).await?;
    let files: BTreeMap<String, Expected> = serde_json::from_slice(&testdata("expected.json"))?;

    let mut wrong = Vec::new();
    for (name, expected) in &files {
        wrong.extend(difference(name, expected, &show(&world, name, 1).await?));
    }

    assert!(files.len() >= 30, "{}", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

#[tokio::test]
async fn a_document_is_read_from_a_line_on_and_its_kind_is_named() -> anyhow::Result<()> {
    let world = World::start().await?;
    let reader = env!("CARGO_BIN_EXE_agent-runner-child");
    let config = world.config();
    let _runner = world.runner_with(config, |app| app.with_document_reader(reader.into())).await?;

    let word = show(&world, "policy-python-docx.docx", 1).await?.output;
    let part = show(&world, "orders-openpyxl.xlsx", 3).await?.output;
    let csv = show(&world, "contacts-gbk.csv", 1).await?.output;
    let scan = show(&world, "scan-pillow.pdf", 1).await?;

    assert!(word.contains(" is a Word document: this is its text]"), "{word}");
    assert!(word.contains("     1\t# Returns\n"), "{word}");
    assert!(part.contains("     3\tCustomer | Amount | Date | Paid\n"), "{part}");
    assert!(csv.contains(" is in GBK;") && csv.contains("     2\t张三,13800000000,北京"), "{csv}");
    // A model that sees nothing is told so.
    assert!(
        scan.output.contains("of its 2 pages, these are shown as pictures: 1, 2]"),
        "{}",
        scan.output
    );
    assert!(scan.later.contains("that this model cannot see]"), "{}", scan.later);
    assert_eq!(count_pictures(&scan.later), 0);
    Ok(())
}
