//! Values of the memory that a step has set, and what they were before.

use std::collections::BTreeMap;

use holdfast_grpc::MemoryClient;
use holdfast_proto::memory::v1 as pb;
use holdfast_types::{Entry, TenantId, ToolCall};

use crate::{Error, report::RollbackMode};

/// Tool that sets a value.
const SET_TOOL: &str = "memory_set";

/// A value that has ended.
const NO_VALUE: &str = "null";

/// Versions of one value that are looked at.
const MAX_VERSIONS: u32 = 500;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoneValues {
    pub(crate) restored: Vec<String>,
    pub(crate) conflicts: Vec<String>,
}

/// First and last item that the step stored under one key.
struct SetValue {
    first: pb::Item,
    last: pb::Item,
}

/// Sets the values of a step to what they were before.
pub(crate) async fn undo_values(
    memory: Option<&MemoryClient>,
    tenant: TenantId,
    entries: &[Entry],
    (key, mode): (&str, RollbackMode),
) -> Result<UndoneValues, Error> {
    let ids = stored_items(entries);
    let mut undone = UndoneValues::default();
    if ids.is_empty() {
        return Ok(undone);
    }
    let memory = memory.ok_or(Error::NoMemory)?;
    let mut values: BTreeMap<(String, String, String), SetValue> = BTreeMap::new();
    for id in ids {
        let item = item(memory, tenant, id).await?;
        let owner = (item.subject.clone(), item.agent.clone(), item.user.clone());
        let first = SetValue { first: item.clone(), last: item.clone() };
        values.entry(owner).or_insert(first).last = item;
    }
    for (number, ((name, ..), SetValue { first, last })) in values.into_iter().enumerate() {
        let before = item_before(memory, tenant, &first).await?;
        let content = before.as_ref().map_or(NO_VALUE, |before| before.content.as_str());
        if !last.superseded_by.is_empty() {
            // An earlier attempt may have set it already.
            let newer = item(memory, tenant, last.superseded_by).await?;
            let is_restored = newer.content == content && newer.superseded_by.is_empty();
            let names = if is_restored { &mut undone.restored } else { &mut undone.conflicts };
            names.push(name);
            continue;
        }
        if mode == RollbackMode::Make {
            let request_id = format!("{key}:{number}");
            let put = put_request(&last, before, request_id);
            memory.put_items(tenant, put).await?;
        }
        undone.restored.push(name);
    }
    Ok(undone)
}

/// Ids of the items that the calls of a step have stored.
fn stored_items(entries: &[Entry]) -> Vec<String> {
    let mut calls: Vec<&ToolCall> = Vec::new();
    let mut ids = Vec::new();
    for entry in entries {
        match entry {
            Entry::Thought { calls: made, .. } => {
                calls = made.iter().filter(|call| call.tool == SET_TOOL).collect();
            }
            Entry::Returned { call, failed: false, record, .. }
                if calls.iter().any(|made| made.id == *call) =>
            {
                let details = record.details.as_ref();
                let id = details.and_then(|details| details["memory"].as_str());
                ids.extend(id.map(str::to_owned));
            }
            Entry::Heard { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => {}
        }
    }
    ids
}

async fn item(memory: &MemoryClient, tenant: TenantId, id: String) -> Result<pb::Item, Error> {
    let get = pb::GetItemRequest { who: Some(full_access()), id, ..pb::GetItemRequest::default() };
    Ok(memory.get_item(tenant, get).await?)
}

/// The item that an item has replaced.
async fn item_before(
    memory: &MemoryClient,
    tenant: TenantId,
    item: &pb::Item,
) -> Result<Option<pb::Item>, Error> {
    let list = pb::ListItemsRequest {
        who: Some(full_access()),
        kinds: vec![pb::Kind::Value.into()],
        subject: item.subject.clone(),
        history: true,
        limit: MAX_VERSIONS,
        of_agent: Some(item.agent.clone()),
        of_user: Some(item.user.clone()),
        ..pb::ListItemsRequest::default()
    };
    let listed = memory.list_items(tenant, list).await?.items;
    let before = listed.into_iter().find(|before| before.superseded_by == item.id);
    Ok(before.filter(|before| before.active))
}

fn put_request(
    last: &pb::Item,
    before: Option<pb::Item>,
    request_id: String,
) -> pb::PutItemsRequest {
    let who = pb::Who {
        agent: last.agent.clone(),
        user: last.user.clone(),
        group: last.group_safe,
        ..pb::Who::default()
    };
    let value = match before {
        Some(before) => pb::NewItem {
            content: before.content,
            session: before.session,
            confidence: before.confidence,
            importance: before.importance,
            tags: before.tags,
            at: before.at,
            expires_at: before.expires_at,
            provenance: before.provenance,
            ..pb::NewItem::default()
        },
        None => pb::NewItem {
            content: NO_VALUE.to_owned(),
            session: last.session.clone(),
            provenance: last.provenance.clone(),
            ..pb::NewItem::default()
        },
    };
    let value = pb::NewItem {
        kind: pb::Kind::Value.into(),
        subject: last.subject.clone(),
        group_safe: last.group_safe,
        ..value
    };
    pb::PutItemsRequest { who: Some(who), items: vec![value], unless_like: 0.0, request_id }
}

fn full_access() -> pb::Who {
    pb::Who { everything: true, maintainer: true, ..pb::Who::default() }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{CallRecord, Media, Usage};
    use serde_json::json;

    use super::*;

    fn thought(calls: &[(&str, &str)]) -> Entry {
        let call = |(id, tool): &(&str, &str)| ToolCall {
            id: (*id).to_owned(),
            tool: (*tool).to_owned(),
            input: "{}".to_owned(),
        };
        Entry::Thought {
            text: String::new(),
            calls: calls.iter().map(call).collect(),
            usage: Usage::default(),
            model: String::new(),
            carry: None,
            record: None,
        }
    }

    fn returned(call: &str, id: &str, failed: bool) -> Entry {
        let details = Some(json!({ "memory": id }));
        Entry::Returned {
            call: call.to_owned(),
            output: String::new(),
            failed,
            media: Media::default(),
            record: CallRecord { details, ..CallRecord::default() },
        }
    }

    #[test]
    fn only_values_that_were_set_are_looked_up() {
        let entries = [
            thought(&[("a", SET_TOOL), ("b", "memory_save"), ("c", SET_TOOL)]),
            returned("a", "itm_1", false),
            returned("b", "itm_2", false),
            returned("c", "itm_3", true),
            thought(&[("a", "memory_save"), ("d", SET_TOOL)]),
            returned("a", "itm_4", false),
            returned("d", "itm_5", false),
        ];

        assert_eq!(stored_items(&entries), ["itm_1", "itm_5"]);
    }
}
