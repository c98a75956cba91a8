//! Proposed changes of articles: made once, by a maintainer, and only to the proposed version.

use holdfast_grpc::MemoryCallError;
use holdfast_proto::memory::v1::{self as pb, forget_request::What};
use holdfast_types::Kind;
use serde_json::json;

use crate::world::{Person, World, from};

fn maintainer(person: &Person) -> Person {
    let who = pb::Who { maintainer: true, everything: true, ..pb::Who::default() };
    Person { who, ..person.clone() }
}

/// Adds an article and returns its id.
async fn article(person: &Person) -> anyhow::Result<String> {
    let request = pb::IngestRequest {
        who: person.me(),
        scope: pb::Scope::Tenant.into(),
        content: b"# Tea\n\nBoil it for a minute.".to_vec(),
        provenance: from(),
        ..pb::IngestRequest::default()
    };
    Ok(person.memory.kb_ingest(person.tenant, request).await?.id)
}

/// Stores a proposal as an agent does for a user who may not make the change.
async fn propose(
    person: &Person,
    article: &str,
    version: u32,
    text: &str,
) -> anyhow::Result<String> {
    let change = json!({
        "article": article, "version": version, "title": "", "text": text, "source": "Bo",
        "author": "coach",
    });
    let item = pb::NewItem {
        kind: pb::Kind::Event.into(),
        r#type: "kb_proposal".into(),
        content: change.to_string(),
        session: "s1".into(),
        provenance: from(),
        ..pb::NewItem::default()
    };
    person.put(vec![item]).await?.pop().ok_or_else(|| anyhow::anyhow!("one thing, one id"))
}

async fn decide(
    person: &Person,
    id: &str,
    verdict: pb::Verdict,
) -> Result<pb::Proposal, MemoryCallError> {
    let request = pb::DecideRequest {
        who: person.me(),
        id: id.to_owned(),
        verdict: verdict.into(),
        by: "ann's key".to_owned(),
        reason: "as the maker says".to_owned(),
    };
    person.memory.kb_decide(person.tenant, request).await
}

async fn listed(person: &Person, decided: bool) -> anyhow::Result<Vec<pb::Proposal>> {
    let request = pb::ProposalsRequest { who: person.me(), decided, ..Default::default() };
    Ok(person.memory.kb_proposals(person.tenant, request).await?.proposals)
}

async fn read(person: &Person, id: &str) -> anyhow::Result<pb::Article> {
    let request = pb::GetRequest { who: person.me(), id: id.to_owned(), version: 0 };
    Ok(person.memory.kb_get(person.tenant, request).await?)
}

#[tokio::test]
async fn an_accepted_change_is_made_and_says_who_proposed_and_who_accepted_it() -> anyhow::Result<()>
{
    let (_world, served) = World::start().await?;
    let bo = served.somebody().as_user("bo");
    let boss = maintainer(&bo);
    let tea = article(&bo).await?;
    let id = propose(&bo, &tea, 1, "# Tea\n\nBoil it for three minutes.").await?;

    let open = listed(&boss, false).await?;
    let accepted = decide(&boss, &id, pb::Verdict::Accepted).await?;
    let again = decide(&boss, &id, pb::Verdict::Accepted).await?;
    let changed_mind = decide(&boss, &id, pb::Verdict::Declined).await.unwrap_err();

    assert_eq!(open.len(), 1);
    let one = &open[0];
    assert_eq!((&one.id, &one.article, one.version), (&id, &tea, 1));
    assert_eq!((one.user.as_str(), one.author.as_str(), one.text.as_str()), ("bo", "coach", ""));
    assert_eq!(one.verdict(), pb::Verdict::Unspecified);
    assert_eq!((accepted.verdict(), accepted.made), (pb::Verdict::Accepted, 2));
    assert_eq!((accepted.decided_by.as_str(), accepted.made), ("ann's key", again.made));
    assert_eq!(changed_mind.kind, Kind::Conflict);
    assert!(changed_mind.message.contains("accepted already"), "{changed_mind}");
    let tea = read(&bo, &tea).await?;
    assert_eq!((tea.version, tea.text.as_str()), (2, "# Tea\n\nBoil it for three minutes."));
    assert_eq!((tea.author.as_str(), tea.accepted_by.as_str()), ("coach", "ann's key"));
    assert_eq!(bo.found("three minutes").await?.len(), 1);
    assert!(listed(&boss, false).await?.is_empty());
    assert_eq!(listed(&boss, true).await?[0].verdict(), pb::Verdict::Accepted);
    Ok(())
}

#[tokio::test]
async fn a_declined_change_leaves_the_article_and_keeps_the_reason() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let bo = served.somebody().as_user("bo");
    let boss = maintainer(&bo);
    let tea = article(&bo).await?;
    let id = propose(&bo, &tea, 1, "Never boil it.").await?;

    let declined = decide(&boss, &id, pb::Verdict::Declined).await?;

    assert_eq!((declined.verdict(), declined.made), (pb::Verdict::Declined, 0));
    let get = pb::GetProposalRequest { who: boss.me(), id };
    let kept = boss.memory.kb_proposal(boss.tenant, get).await?;
    assert_eq!((kept.reason.as_str(), kept.text.as_str()), ("as the maker says", "Never boil it."));
    assert_eq!(read(&bo, &tea).await?.version, 1);
    Ok(())
}

#[tokio::test]
async fn a_change_of_what_is_no_longer_there_is_refused_and_stays_open() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let bo = served.somebody().as_user("bo");
    let boss = maintainer(&bo);
    let tea = article(&bo).await?;
    let named = propose(&bo, &tea, 1, "First.").await?;
    let newest = propose(&bo, &tea, 0, "Second.").await?;
    let change = pb::UpdateRequest {
        who: boss.me(),
        id: tea.clone(),
        title: "Green tea".into(),
        provenance: from(),
        ..pb::UpdateRequest::default()
    };
    boss.memory.kb_update(boss.tenant, change).await?;

    for id in [&named, &newest] {
        let refused = decide(&boss, id, pb::Verdict::Accepted).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Conflict);
        assert!(refused.message.contains("at version 2 now"), "{refused}");
    }

    assert_eq!(listed(&boss, false).await?.len(), 2);
    assert_eq!(read(&bo, &tea).await?.version, 2);
    let remove = pb::RemoveRequest { who: boss.me(), id: tea };
    boss.memory.kb_remove(boss.tenant, remove).await?;
    let gone = decide(&boss, &named, pb::Verdict::Accepted).await.unwrap_err();
    assert_eq!(gone.kind, Kind::NotFound);
    decide(&boss, &named, pb::Verdict::Declined).await?;
    Ok(())
}

#[tokio::test]
async fn only_a_maintainer_decides_and_only_about_proposals() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let bo = served.somebody().as_user("bo");
    let boss = maintainer(&bo);
    let tea = article(&bo).await?;
    let id = propose(&bo, &tea, 1, "Mine.").await?;
    let memory = bo.tell("likes tea").await?;

    let own = decide(&bo, &id, pb::Verdict::Accepted).await.unwrap_err();
    let other_thing = decide(&boss, &memory, pb::Verdict::Accepted).await.unwrap_err();
    let stranger = maintainer(&served.somebody());
    let foreign = decide(&stranger, &id, pb::Verdict::Accepted).await.unwrap_err();
    let undecided = decide(&boss, &id, pb::Verdict::Unspecified).await.unwrap_err();

    assert_eq!(own.kind, Kind::Forbidden);
    assert_eq!((other_thing.kind, foreign.kind), (Kind::NotFound, Kind::NotFound));
    assert_eq!(undecided.kind, Kind::Invalid);
    assert!(listed(&stranger, true).await?.is_empty());
    assert_eq!(read(&bo, &tea).await?.version, 1);
    Ok(())
}

#[tokio::test]
async fn two_that_accept_at_once_make_one_version() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let bo = served.somebody().as_user("bo");
    let boss = maintainer(&bo);
    let tea = article(&bo).await?;
    let id = propose(&bo, &tea, 0, "Once.").await?;

    let accept = || decide(&boss, &id, pb::Verdict::Accepted);
    let (one, two) = tokio::join!(accept(), accept());

    assert_eq!((one?.made, two?.made), (2, 2));
    assert_eq!(read(&bo, &tea).await?.version, 2);
    Ok(())
}

#[tokio::test]
async fn whoever_is_erased_leaves_neither_proposals_nor_decisions() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let bo = served.somebody().as_user("bo");
    let boss = maintainer(&bo);
    let tea = article(&bo).await?;
    let id = propose(&bo, &tea, 1, "Once.").await?;
    decide(&boss, &id, pb::Verdict::Declined).await?;

    let what = Some(What::User("bo".into()));
    let forget = pb::ForgetRequest { who: boss.me(), what };
    let erased = boss.memory.forget(boss.tenant, forget).await?;

    let items = erased.erased.iter().find(|count| count.what == "items").map(|count| count.rows);
    assert_eq!(items, Some(2));
    assert!(listed(&boss, true).await?.is_empty());
    Ok(())
}
