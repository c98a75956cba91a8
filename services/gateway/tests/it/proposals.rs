//! Proposals of agents over gRPC: decided once, applied as versions, taken back.

use holdfast_proposals::{NewProposal, Proposal};
use holdfast_proto::gateway::v1::{
    self as pb, behaviors_client::BehaviorsClient, files_client::FilesClient,
    proposals_client::ProposalsClient,
};
use holdfast_types::{ProposalKind, RunId, SessionId};
use holdfast_work::Place;
use tonic::{Code, Status, transport::Channel};

use crate::world::{World, message};

const SKILL: &str = "---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n";

async fn client(world: &World) -> ProposalsClient<Channel> {
    ProposalsClient::new(world.channel().await.unwrap())
}

/// A conversation of the agent, in which it makes proposals.
async fn place(world: &World) -> Place {
    let sent = world.send(&world.anna, message("hello")).await.unwrap();
    let session: SessionId = sent.session_id.parse().unwrap();
    let agent = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    Place { run: Some(RunId::generate()), ..Place::outside(session, agent.id) }
}

async fn propose(
    world: &World,
    place: &Place,
    (kind, target, content): (ProposalKind, &str, &str),
) -> Proposal {
    let new = NewProposal {
        key: uuid::Uuid::now_v7().to_string(),
        place: place.clone(),
        kind,
        target: target.into(),
        content: content.into(),
        goal: "be better".into(),
        risk: "none".into(),
        benefit: "less work".into(),
        outside: false,
    };
    world.proposals().propose(world.anna.id, &new).await.unwrap()
}

async fn approve(world: &World, id: &str) -> Result<pb::AgentProposal, Status> {
    let request = world.anna.request(pb::ApproveAgentProposalRequest { id: id.into() });
    let answer = client(world).await.approve_agent_proposal(request).await?;
    Ok(answer.into_inner().proposal.unwrap())
}

async fn roll_back(world: &World, id: &str) -> Result<pb::AgentProposal, Status> {
    let request = world.anna.request(pb::RollBackAgentProposalRequest { id: id.into() });
    let answer = client(world).await.roll_back_agent_proposal(request).await?;
    Ok(answer.into_inner().proposal.unwrap())
}

async fn file(world: &World, path: &str) -> Option<String> {
    let mut files = FilesClient::new(world.channel().await.unwrap());
    let request = pb::ReadFileRequest { path: path.into(), ..Default::default() };
    let found = files.read_file(world.anna.request(request)).await;
    found.ok().map(|found| String::from_utf8(found.into_inner().content).unwrap())
}

async fn write(world: &World, path: &str, text: &str) {
    let mut files = FilesClient::new(world.channel().await.unwrap());
    let content = text.as_bytes().to_vec();
    let request = pb::WriteFileRequest { path: path.into(), content, ..Default::default() };
    files.write_file(world.anna.request(request)).await.unwrap();
}

async fn behavior(world: &World, name: &str) -> Option<(String, i64)> {
    let mut behaviors = BehaviorsClient::new(world.channel().await.unwrap());
    let request = pb::GetBehaviorRequest { agent: "main".into(), name: name.into(), version: 0 };
    let found = behaviors.get_behavior(world.anna.request(request)).await.ok()?;
    let found = found.into_inner().behavior.unwrap();
    Some((found.source, found.version))
}

#[tokio::test]
async fn a_proposal_changes_nothing_until_it_is_approved_and_is_taken_back_as_a_version() {
    let world = World::start().await.unwrap();
    let place = place(&world).await;
    let look = "process_rule: Look around.\n";
    for (kind, target, content) in [
        (ProposalKind::SelfFile, "", "## Identity\n\nAda\n"),
        (ProposalKind::Skill, "tea", SKILL),
        (ProposalKind::Behavior, "look", look),
    ] {
        let made = propose(&world, &place, (kind, target, content)).await;
        let id = made.id.to_string();
        let text = async || match kind {
            ProposalKind::SelfFile => file(&world, "self.md").await,
            ProposalKind::Skill => file(&world, "skills/tea/SKILL.md").await,
            ProposalKind::Behavior => behavior(&world, "look").await.map(|(source, _)| source),
        };
        assert_eq!(text().await, None, "{kind}");

        let get = world.anna.request(pb::GetAgentProposalRequest { id: id.clone() });
        let found = client(&world).await.get_agent_proposal(get).await.unwrap().into_inner();
        let found = found.proposal.unwrap();
        assert_eq!((found.state.as_str(), found.content.as_str()), ("proposed", content));
        assert!(found.diff.contains('+'), "{}", found.diff);
        let applied = approve(&world, &id).await.unwrap();
        assert_eq!(applied.state, "applied");
        assert!(!applied.applied_as.is_empty() && !applied.decided_by.is_empty(), "{applied:?}");
        assert_eq!(text().await.as_deref(), Some(content), "{kind}");
        // Once: a second approval changes nothing.
        assert_eq!(approve(&world, &id).await.unwrap().applied_as, applied.applied_as);

        assert_eq!(roll_back(&world, &id).await.unwrap().state, "rolled_back");
        assert_eq!(text().await, None, "{kind}");
        assert_eq!(roll_back(&world, &id).await.unwrap_err().code(), Code::Aborted);
        assert_eq!(approve(&world, &id).await.unwrap_err().code(), Code::Aborted);
    }
    let list = pb::ListAgentProposalsRequest { agent: "main".into(), ..Default::default() };
    let listed = client(&world).await.list_agent_proposals(world.anna.request(list)).await;
    let listed = listed.unwrap().into_inner().proposals;
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|one| one.content.is_empty() && one.state == "rolled_back"));
    let records = "select payload->>'state' from work.worklog where type = 'Proposal.v1'
                   and payload->>'kind' = 'self' order by seq";
    assert_eq!(
        world.texts(records).await.unwrap(),
        ["proposed", "approved", "applied", "rolled_back"]
    );
}

#[tokio::test]
async fn a_stale_base_is_a_conflict_that_says_so_and_changes_nothing() {
    let world = World::start().await.unwrap();
    let place = place(&world).await;
    let look = |text: &str| format!("name: look\nprocess_rule: {text}\n");
    let mine = look("Mine.");
    let file_change = propose(&world, &place, (ProposalKind::SelfFile, "", "mine\n")).await;
    let behavior_change = propose(&world, &place, (ProposalKind::Behavior, "look", &mine)).await;

    write(&world, "self.md", "theirs\n").await;
    let mut behaviors = BehaviorsClient::new(world.channel().await.unwrap());
    let theirs = look("Theirs.");
    let put = pb::PutBehaviorRequest {
        agent: "main".into(),
        source: theirs.clone(),
        ..Default::default()
    };
    behaviors.put_behavior(world.anna.request(put)).await.unwrap();
    for change in [&file_change, &behavior_change] {
        let refused = approve(&world, &change.id.to_string()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted);
        assert!(refused.message().contains("was changed since"), "{}", refused.message());
        let found = world.proposals().get(world.anna.id, change.id).await.unwrap();
        assert_eq!(found.state.as_str(), "failed");
        assert!(found.reason.contains("was changed since"), "{}", found.reason);
    }
    assert_eq!(file(&world, "self.md").await.as_deref(), Some("theirs\n"));
    assert_eq!(behavior(&world, "look").await.unwrap().0, theirs);

    // An applied change is not taken back over somebody else's.
    let next = propose(&world, &place, (ProposalKind::SelfFile, "", "mine again\n")).await;
    approve(&world, &next.id.to_string()).await.unwrap();
    write(&world, "self.md", "theirs again\n").await;
    let refused = roll_back(&world, &next.id.to_string()).await.unwrap_err();
    assert!(refused.message().contains("was changed since"), "{}", refused.message());
    assert_eq!(file(&world, "self.md").await.as_deref(), Some("theirs again\n"));
}

#[tokio::test]
async fn a_process_that_died_between_the_change_and_its_record_is_made_good_by_approving_again() {
    let world = World::start().await.unwrap();
    let place = place(&world).await;
    let source = "name: look\nprocess_rule: Look.\n";
    let behavior_change = propose(&world, &place, (ProposalKind::Behavior, "look", source)).await;
    let file_change = propose(&world, &place, (ProposalKind::Skill, "tea", SKILL)).await;
    for change in [&behavior_change, &file_change] {
        let id = change.id.to_string();
        approve(&world, &id).await.unwrap();
        let undone = format!(
            "with undone as (
                 update work.proposals set state = 'approved', applied_as = null
                 where proposal_id = '{}' returning 1)
             select count(*) from undone",
            change.id.as_uuid()
        );
        assert_eq!(world.number(&undone).await.unwrap(), 1);

        let again = approve(&world, &id).await.unwrap();

        assert_eq!((again.state.as_str(), again.reason.as_str()), ("applied", ""));
    }
    assert_eq!(behavior(&world, "look").await.unwrap().1, 1);
    let revisions = "select count(*) from workspace.changes where path = 'skills/tea/SKILL.md'";
    assert_eq!(world.number(revisions).await.unwrap(), 1);
}

#[tokio::test]
async fn a_rejected_proposal_tells_why_and_is_never_applied() {
    let world = World::start().await.unwrap();
    let place = place(&world).await;
    let made = propose(&world, &place, (ProposalKind::SelfFile, "", "I may do anything.\n")).await;
    let id = made.id.to_string();
    let reject = |reason: &str| {
        let (id, reason) = (id.clone(), reason.into());
        world.anna.request(pb::RejectAgentProposalRequest { id, reason })
    };

    let rejected = client(&world).await.reject_agent_proposal(reject("too much")).await.unwrap();

    let rejected = rejected.into_inner().proposal.unwrap();
    assert_eq!((rejected.state.as_str(), rejected.reason.as_str()), ("rejected", "too much"));
    let again = client(&world).await.reject_agent_proposal(reject("")).await.unwrap_err();
    assert_eq!(again.code(), Code::Aborted);
    assert_eq!(approve(&world, &id).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(file(&world, "self.md").await, None);
}
