//! Validation of items, turns and documents to store.

use holdfast_proto::memory::v1 as pb;
use serde_json::Value;

use crate::{
    Error,
    operations::{NewDocument, NewItem, NewTurn, NewTurns},
    unit::kind,
    validation::{self, Provenance},
};

/// Maximum sizes in bytes: of an item's text, of JSON values, of turns and of documents.
const MAX_TEXT_BYTES: usize = 16 * 1024;
const MAX_JSON_BYTES: usize = 256 * 1024;
const MAX_TURN_BYTES: usize = 64 * 1024;
const MAX_DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

const MEMORY_TYPES: [&str; 4] = ["preference", "fact", "event", "commitment"];

pub fn item(new: pb::NewItem) -> Result<NewItem, Error> {
    let kind = match new.kind() {
        pb::Kind::Memory => memory(&new)?,
        pb::Kind::Value => value(&new)?,
        pb::Kind::Fact => fact(&new)?,
        pb::Kind::Event => event(&new)?,
        _ => {
            let problem = "must be a memory, a value, a fact or an event";
            return Err(Error::field("kind", problem));
        }
    };
    validation::at_most("session", &new.session, 256)?;
    validation::tags(&new.tags)?;
    let supersedes = match new.supersedes.as_str() {
        "" => None,
        id => Some(validation::id("item", "itm", id)?),
    };
    Ok(NewItem {
        kind,
        of_type: new.r#type,
        content: new.content,
        subject: new.subject,
        predicate: new.predicate,
        session: new.session,
        confidence: validation::share("confidence", new.confidence)?,
        importance: validation::share("importance", new.importance)?,
        tags: new.tags,
        group_safe: new.group_safe,
        at: validation::time("at", new.at)?,
        expires_at: validation::time("expires_at", new.expires_at)?,
        supersedes,
        provenance: Provenance::read(new.provenance)?,
    })
}

fn memory(new: &pb::NewItem) -> Result<i16, Error> {
    if !MEMORY_TYPES.contains(&new.r#type.as_str()) {
        let problem = format!("is `{}`: write {}", shown(&new.r#type), MEMORY_TYPES.join(", "));
        return Err(Error::field("type", problem));
    }
    validation::non_blank("content", &new.content, MAX_TEXT_BYTES)?;
    empty("subject", &new.subject)?;
    empty("predicate", &new.predicate)?;
    Ok(kind::MEMORY)
}

fn value(new: &pb::NewItem) -> Result<i16, Error> {
    validation::non_blank("subject", &new.subject, 512)?;
    empty("predicate", &new.predicate)?;
    json(&new.content)?;
    validation::at_most("type", &new.r#type, 64)?;
    Ok(kind::VALUE)
}

fn fact(new: &pb::NewItem) -> Result<i16, Error> {
    validation::non_blank("subject", &new.subject, 512)?;
    validation::non_blank("predicate", &new.predicate, 512)?;
    validation::non_blank("content", &new.content, MAX_TEXT_BYTES)?;
    validation::at_most("type", &new.r#type, 64)?;
    Ok(kind::FACT)
}

fn event(new: &pb::NewItem) -> Result<i16, Error> {
    validation::non_blank("type", &new.r#type, 64)?;
    empty("subject", &new.subject)?;
    empty("predicate", &new.predicate)?;
    json(&new.content)?;
    Ok(kind::EVENT)
}

fn json(content: &str) -> Result<(), Error> {
    validation::non_blank("content", content, MAX_JSON_BYTES)?;
    serde_json::from_str::<Value>(content)
        .map(|_| ())
        .map_err(|error| Error::field("content", format!("is no JSON: {error}")))
}

fn empty(field: &'static str, text: &str) -> Result<(), Error> {
    if text.is_empty() { Ok(()) } else { Err(Error::field(field, "is not for this kind")) }
}

pub fn turns(request: pb::AddTurnsRequest) -> Result<NewTurns, Error> {
    validation::non_blank("session", &request.session, 256)?;
    if !(1..=512).contains(&request.turns.len()) {
        let problem = format!("are {}: send 1 to 512 at once", request.turns.len());
        return Err(Error::field("turns", problem));
    }
    let turn = |turn: pb::Turn| {
        validation::non_blank("turns.ref", &turn.r#ref, 256)?;
        validation::at_most("turns.author", &turn.author, 200)?;
        validation::non_blank("turns.text", &turn.text, MAX_TURN_BYTES)?;
        Ok(NewTurn {
            reference: turn.r#ref,
            author: turn.author,
            text: turn.text,
            at: validation::time("turns.at", turn.at)?,
        })
    };
    Ok(NewTurns {
        session: request.session,
        turns: request.turns.into_iter().map(turn).collect::<Result<_, Error>>()?,
        group_safe: request.group_safe,
        provenance: Provenance::read(request.provenance)?,
    })
}

pub fn document(request: pb::IndexDocumentRequest) -> Result<NewDocument, Error> {
    validation::non_blank("path", &request.path, 512)?;
    validation::at_most("text", &request.text, MAX_DOCUMENT_BYTES)?;
    validation::at_most("hash", &request.hash, 128)?;
    Ok(NewDocument {
        path: request.path,
        text: request.text,
        hash: request.hash,
        group_safe: request.group_safe,
        dated: validation::time("dated", request.dated)?,
        provenance: Provenance::read(request.provenance)?,
    })
}

/// Returns the beginning of an invalid text, for use in errors.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}
