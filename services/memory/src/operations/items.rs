//! Items: memories, values, facts and events, with their replacement.

use holdfast_embed::Purpose;
use holdfast_pg::TenantTx;
use holdfast_types::TenantId;
use jiff::Timestamp;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use super::MemoryService;
use crate::{
    Error,
    store::{
        items::{self, Active, Item, ItemFilter, to_column},
        queue, spaces, units,
        vectors::{self, Model, SimilarMemory},
    },
    unit::{Unit, UnitContent, kind, terms_of},
    validation::Provenance,
    viewer::Viewer,
};

/// Item to store, with validated fields.
#[derive(Debug, Clone)]
pub struct NewItem {
    pub kind: i16,
    pub of_type: String,
    pub content: String,
    pub subject: String,
    pub predicate: String,
    pub session: String,
    pub confidence: Option<f64>,
    pub importance: Option<f64>,
    pub tags: Vec<String>,
    pub group_safe: bool,
    pub at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub supersedes: Option<Uuid>,
    pub provenance: Provenance,
}

/// Stored item, or an existing one with the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredItem {
    pub id: Uuid,
    pub duplicate: bool,
}

impl MemoryService {
    /// Stores items, all or none.
    pub async fn put(
        &self,
        tenant: TenantId,
        who: &Viewer,
        new: &[NewItem],
        unless_like: f64,
        request: &str,
    ) -> Result<Vec<StoredItem>, Error> {
        let embedded = self.embed_memories(new, unless_like).await?;
        let mut tx = self.pools.tenant(tenant).await?;
        if !request.is_empty() {
            let made = items::of_request(&mut tx, request).await?;
            if !made.is_empty() {
                tx.finish_reading();
                let kept = |(_, id): &(i32, Uuid)| StoredItem { id: *id, duplicate: true };
                return Ok(made.iter().map(kept).collect());
            }
        }
        let mut kept = Vec::with_capacity(new.len());
        for (n, (item, vector)) in new.iter().zip(&embedded).enumerate() {
            let request =
                (!request.is_empty()).then(|| (request, i32::try_from(n).unwrap_or(i32::MAX)));
            let like = DuplicateCheck { vector: vector.as_deref(), at_least: unless_like };
            kept.push(self.put_one(&mut tx, who, item, &like, request).await?);
        }
        tx.commit().await?;
        self.waiting.notify_one();
        Ok(kept)
    }

    /// Returns the vectors of those items that are checked for duplicates, by index.
    async fn embed_memories(
        &self,
        new: &[NewItem],
        unless_like: f64,
    ) -> Result<Vec<Option<Vec<f32>>>, Error> {
        let mut vectors = vec![None; new.len()];
        if unless_like <= 0.0 {
            return Ok(vectors);
        }
        let places: Vec<usize> = (0..new.len()).filter(|&n| new[n].kind == kind::MEMORY).collect();
        let texts: Vec<String> = places.iter().map(|&n| new[n].content.clone()).collect();
        if texts.is_empty() {
            return Ok(vectors);
        }
        let made = self.embedders.current.embed(&texts, Purpose::Passage).await?;
        for (n, vector) in places.into_iter().zip(made) {
            vectors[n] = Some(vector);
        }
        Ok(vectors)
    }

    async fn put_one(
        &self,
        tx: &mut TenantTx,
        who: &Viewer,
        new: &NewItem,
        like: &DuplicateCheck<'_>,
        request: Option<(&str, i32)>,
    ) -> Result<StoredItem, Error> {
        let now = &self.embedders.current;
        let model = Model { name: now.model(), dimension: now.dimension() };
        // An item that replaces another is similar to it by nature: no duplicate check.
        if let Some(vector) = like.vector.filter(|_| new.supersedes.is_none()) {
            // Lock: of two equal memories stored at once, one is kept.
            let whose = (who.agent, who.user.as_str(), new.of_type.as_str());
            lock_memories(tx, who).await?;
            let near = vectors::nearest(tx, model.name, vector, whose).await?;
            let says_the_same = |near: &SimilarMemory| {
                near.cosine >= like.at_least && numbers(&near.text) == numbers(&new.content)
            };
            if let Some(near) = near.filter(says_the_same) {
                return Ok(StoredItem { id: near.id, duplicate: true });
            }
        }
        let item = item(who, new);
        for old in self.replaced(tx, who, new).await? {
            items::supersede(tx, old, item.item_id).await?;
            units::remove_of(tx, old).await?;
        }
        items::insert(tx, &item, request).await?;
        if let Some(unit) = unit_of(tx.tenant(), &item) {
            let id = unit.unit_id;
            units::insert(tx, &[unit]).await?;
            if let Some(vector) = like.vector {
                let space = spaces::ensure(tx, model).await?;
                vectors::insert(tx, model, &[(id, vector)]).await?;
                if space.model == model.name {
                    queue::done(tx, &[id]).await?;
                }
            }
        }
        Ok(StoredItem { id: item.item_id, duplicate: false })
    }

    /// Returns the items that the new one replaces: the one it names, and the one with its key.
    async fn replaced(
        &self,
        tx: &mut TenantTx,
        who: &Viewer,
        new: &NewItem,
    ) -> Result<Vec<Uuid>, Error> {
        let mut replaced = Vec::new();
        if matches!(new.kind, kind::VALUE | kind::FACT) {
            let key = (new.subject.as_str(), new.predicate.as_str());
            replaced.extend(items::current(tx, who, new.kind, key).await?);
        }
        if let Some(old) = new.supersedes {
            items::lock(tx, old).await?;
            // What is everybody's is seen by each user, and not replaced by them.
            let may_replace =
                |there: &Item| there.user_id == who.user || who.maintainer || who.everything;
            let there = items::get(tx, who, old).await?;
            let there = there.filter(|there| there.kind == new.kind && may_replace(there));
            let there = there.ok_or_else(|| not_found(old))?;
            if let Some(by) = there.superseded_by {
                let told = |id| crate::validation::prefixed_id("itm", id);
                return Err(Error::Superseded { id: told(old), by: told(by) });
            }
            if !replaced.contains(&old) {
                replaced.push(old);
            }
        }
        Ok(replaced)
    }

    pub async fn item(&self, tenant: TenantId, who: &Viewer, id: Uuid) -> Result<Item, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let item = items::get(&mut tx, who, id).await?;
        tx.finish_reading();
        item.ok_or_else(|| not_found(id))
    }

    pub async fn value(&self, tenant: TenantId, who: &Viewer, key: &str) -> Result<Item, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let item = items::by_key(&mut tx, who, key).await?;
        tx.finish_reading();
        item.ok_or_else(|| Error::not_found("value", key))
    }

    pub async fn items(
        &self,
        tenant: TenantId,
        who: &Viewer,
        which: &ItemFilter,
    ) -> Result<Vec<Item>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let items = items::list(&mut tx, who, which).await?;
        tx.finish_reading();
        Ok(items)
    }

    /// Hides an item from search and lists, or shows it again.
    pub async fn set_active(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
        active: Active,
    ) -> Result<Item, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        // The lock waits for an erasure in progress: the item must not become visible after it.
        items::lock(&mut tx, id).await?;
        let item = items::get(&mut tx, who, id).await?.ok_or_else(|| not_found(id))?;
        items::set_active(&mut tx, id, active).await?;
        units::remove_of(&mut tx, id).await?;
        let item = Item { active: active == Active::Yes, ..item };
        if let Some(unit) = unit_of(tenant, &item) {
            units::insert(&mut tx, &[unit]).await?;
        }
        tx.commit().await?;
        self.waiting.notify_one();
        Ok(item)
    }
}

/// Vector of a new memory and the similarity of a duplicate.
struct DuplicateCheck<'a> {
    vector: Option<&'a [f32]>,
    at_least: f64,
}

async fn lock_memories(tx: &mut TenantTx, who: &Viewer) -> sqlx::Result<()> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 36))";
    let whose = format!("{}:{}:{}", tx.tenant(), who.agent, who.user);
    holdfast_pg::query(LOCK).bind(whose).execute(tx.conn()).await?;
    Ok(())
}

/// Returns the numbers in a text, sorted. Texts that differ in a number, such as 14:00 and 15:00,
/// are never duplicates, however similar they are.
fn numbers(text: &str) -> Vec<&str> {
    let mut numbers: Vec<&str> = text
        .split(|c: char| !c.is_numeric())
        .map(|digits| digits.trim_start_matches('0'))
        .filter(|digits| !digits.is_empty())
        .collect();
    numbers.sort_unstable();
    numbers
}

fn not_found(id: Uuid) -> Error {
    Error::not_found("item", &crate::validation::prefixed_id("itm", id))
}

fn item(who: &Viewer, new: &NewItem) -> Item {
    let now = Timestamp::now();
    Item {
        item_id: Uuid::now_v7(),
        kind: new.kind,
        agent_id: who.agent,
        user_id: who.user.clone(),
        session: new.session.clone(),
        of_type: new.of_type.clone(),
        subject: new.subject.clone(),
        predicate: new.predicate.clone(),
        content: new.content.clone(),
        confidence: new.confidence,
        importance: new.importance,
        tags: new.tags.clone(),
        group_safe: new.group_safe,
        active: true,
        at: to_column(new.at.unwrap_or(now)),
        expires_at: new.expires_at.map(to_column),
        provenance: Json(new.provenance.clone()),
        superseded_by: None,
        superseded_at: None,
        created_at: to_column(now),
    }
}

/// Returns the searchable unit of an item; `None` if the item is hidden, replaced, expired or null.
fn unit_of(tenant: TenantId, item: &Item) -> Option<Unit> {
    let is_over = item.expires_at.is_some_and(|at| at.to_jiff() <= Timestamp::now());
    if !item.active || item.superseded_at.is_some() || is_over {
        return None;
    }
    let text = match item.kind {
        kind::VALUE if item.content == "null" => return None,
        kind::VALUE => format!("{}: {}", item.subject, plain(&item.content)),
        kind::FACT => format!("{} {} {}", item.subject, item.predicate, item.content),
        kind::EVENT => format!("{}: {}", item.of_type, plain(&item.content)),
        _ => item.content.clone(),
    };
    let whose = Viewer {
        agent: item.agent_id,
        user: item.user_id.clone(),
        group: false,
        maintainer: false,
        everything: false,
    };
    let terms = terms_of(&text);
    let said = UnitContent {
        text: &text,
        terms: &terms,
        context: &[],
        at: item.at.to_jiff(),
        provenance: &item.provenance.0,
    };
    let mut unit = Unit::new(tenant, &whose, item.kind, said);
    unit.source_id = item.item_id;
    unit.session.clone_from(&item.session);
    unit.of_type.clone_from(&item.of_type);
    unit.path.clone_from(&item.subject);
    unit.tags.clone_from(&item.tags);
    unit.group_safe = item.group_safe;
    unit.expires_at = item.expires_at.map(jiff_sqlx::Timestamp::to_jiff);
    Some(unit)
}

/// Returns a JSON string without its quotes; other JSON as it is.
fn plain(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(Value::String(text)) => text,
        _ => json.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_however_it_is_written_and_wherever_it_stands() {
        assert_eq!(numbers("on 3 May at 09:30"), numbers("at 9:30 on May 3"));
        assert_ne!(numbers("at 14:00"), numbers("at 15:00"));
        assert_ne!(numbers("two cats"), numbers("2 cats"));
        assert_eq!(numbers("no number"), Vec::<&str>::new());
    }
}
