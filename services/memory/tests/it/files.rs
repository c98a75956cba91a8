//! Files as people send them: Office files, books, mails, and text in any encoding.

use std::{collections::BTreeMap, path::Path};

use holdfast_proto::memory::v1 as pb;
use holdfast_types::Kind;
use serde::Deserialize;

use crate::world::{Person, World, from};

/// File that a real program wrote (crates/documents/testdata/README.md).
fn testdata(name: &str) -> std::io::Result<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/documents/testdata");
    std::fs::read(folder.join(name))
}

fn request(person: &Person, content: Vec<u8>, media_type: &str) -> pb::IngestRequest {
    pb::IngestRequest {
        who: person.me(),
        scope: pb::Scope::Tenant.into(),
        content,
        media_type: media_type.into(),
        provenance: from(),
        ..pb::IngestRequest::default()
    }
}

#[tokio::test]
async fn files_of_people_become_articles_and_are_found() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    for (name, media_type, title, question, answer) in [
        (
            "policy-python-docx.docx",
            "",
            "Return policy",
            "returned within thirty days",
            "Goods may be returned within thirty days of purchase.",
        ),
        ("orders-openpyxl.xlsx", "", "Sheet: Orders", "Anna Müller", "Anna Müller | 1234.5"),
        ("contacts-gbk.csv", "text/csv", "姓名,电话,城市", "张三", "张三,13800000000,北京"),
        ("contacts-utf16.txt", "text/plain", "姓名\t电话\t城市", "李四", "13900000000"),
        ("tea-ebooklib.epub", "", "The tea book", "green tea steep", "two minutes at 80 degrees"),
        (
            "offer-python-email.eml",
            "message/rfc822",
            "合同 and offer",
            "deliver on Friday",
            "We deliver on Friday.",
        ),
    ] {
        let sent = request(&ann, testdata(name).unwrap(), media_type);
        let article = ann.memory.kb_ingest(ann.tenant, sent).await?;
        let filter =
            pb::Filter { kinds: vec![pb::Kind::Knowledge.into()], ..pb::Filter::default() };
        let found = ann.search_in(question, filter).await?;

        assert_eq!(article.title, title, "{name}");
        let texts: Vec<&str> = found.hits.iter().map(|hit| hit.text.as_str()).collect();
        assert!(texts.iter().any(|text| text.contains(answer)), "{name}: {texts:?}");
    }
    Ok(())
}

/// What `expected.json` says of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Expected {
    title: Option<String>,
    /// Texts that are read, in this order.
    text: Vec<String>,
    refused: Option<String>,
    empty: bool,
    picture: Option<String>,
    pages: Option<usize>,
}

impl Expected {
    /// Part of the reason why nothing is read.
    fn refusal(&self) -> Option<&str> {
        match self {
            Self { refused: Some(reason), .. } => Some(reason),
            Self { empty: true, .. } => Some("has no text that can be read"),
            Self { picture: Some(_), .. } => Some("is an image: have its text recognised (OCR)"),
            Self { pages: Some(_), .. } => Some("is a PDF without text, as a scan is"),
            Self { .. } => None,
        }
    }
}

#[tokio::test]
async fn files_of_every_kind_become_articles_or_are_refused_with_what_to_do() -> anyhow::Result<()>
{
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let files: BTreeMap<String, Expected> = serde_json::from_slice(&testdata("expected.json")?)?;
    let mut wrong = Vec::new();
    for (name, expected) in &files {
        // As the command line does it, by the name.
        let media_type = if name.ends_with(".eml") { "message/rfc822" } else { "" };
        let sent = request(&ann, testdata(name)?, media_type);
        let article = ann.memory.kb_ingest(ann.tenant, sent).await;
        match (article, expected.refusal()) {
            (Err(error), Some(reason)) => {
                assert_eq!(error.kind, Kind::Invalid, "{name}: {error}");
                if !error.message.contains(reason) {
                    wrong.push(format!("{name}: {error}"));
                }
            }
            (Err(error), None) => wrong.push(format!("{name}: {error}")),
            (Ok(_), Some(reason)) => wrong.push(format!("{name} is read, and it {reason}")),
            (Ok(article), None) => {
                let title = expected.title.as_deref().filter(|title| !title.is_empty());
                if title.is_some_and(|title| title != article.title) {
                    wrong.push(format!("{name}: `{}`", article.title));
                }
                let mut rest = article.text.as_str();
                for part in &expected.text {
                    match rest.split_once(part.as_str()) {
                        Some((_, after)) => rest = after,
                        None => wrong.push(format!("{name}: no `{part}` in {}", article.text)),
                    }
                }
            }
        }
    }
    assert!(files.len() >= 30, "{}", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}
