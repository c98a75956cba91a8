//! Skills as rows: which there are, who changed one, which were used, and whose that is.

use holdfast_types::{AgentId, SessionId, TenantId};
use holdfast_workspace::{Base, ChangeAuthor, Error, SkillAction, SkillChange, Workspaces};
use serde_json::json;

use crate::world::{World, by, path, put, put_on};

fn change(skill: &str) -> SkillChange {
    SkillChange {
        action: SkillAction::Put,
        skill: skill.to_owned(),
        registry: String::new(),
        version: "1".to_owned(),
        sha256: "0".repeat(64),
        warning: String::new(),
    }
}

fn keyed(key: &str) -> ChangeAuthor {
    by("ada").with_key(key)
}

#[tokio::test]
async fn a_briefing_has_the_files_asked_for_and_the_heads_of_both_trees() -> anyhow::Result<()> {
    let world = World::start().await?;
    let shared = Workspaces::shared_tree(world.tenant);
    world.put("SOUL.md", "kind").await?;
    world.put("skills/b/SKILL.md", "own").await?;
    for ignored in
        ["skills/SKILL.md", "skills/b/more/SKILL.md", "skills/b/x.md", "skillset/SKILL.md"]
    {
        world.put(ignored, "x").await?;
    }
    world
        .trees
        .commit(world.tenant, shared, &by("ada"), vec![put("skills/a/SKILL.md", "shared")?])
        .await?;

    let paths = [path("SOUL.md")?, path("USER.md")?];
    let briefing = world.trees.turn_files(world.tenant, world.agent, &paths).await?;

    let files: Vec<&str> = briefing.files.keys().map(|path| path.as_str()).collect();
    assert_eq!(files, ["SOUL.md"]);
    let heads: Vec<(bool, &str)> =
        briefing.skills.iter().map(|head| (head.is_shared, head.path.as_str())).collect();
    assert_eq!(heads, [(false, "skills/b/SKILL.md"), (true, "skills/a/SKILL.md")]);
    let texts = world.trees.content_heads(world.tenant, &[briefing.skills[0].hash]).await?;
    assert_eq!(texts[0].1, b"own");
    // A content is its tenant's, though its hash is known.
    let foreign =
        world.trees.content_heads(TenantId::generate(), &[briefing.skills[0].hash]).await?;
    assert_eq!(foreign, []);
    Ok(())
}

#[tokio::test]
async fn a_change_and_its_row_are_made_once_and_together_or_not_at_all() -> anyhow::Result<()> {
    let world = World::start().await?;
    let edits = || Ok::<_, anyhow::Error>(vec![put_on("skills/a/SKILL.md", "x", Base::Absent)?]);
    let (tenant, agent) = (world.tenant, world.agent);

    let first =
        world.trees.change_skill(tenant, agent, &keyed("k"), edits()?, &change("a")).await?;
    let again =
        world.trees.change_skill(tenant, agent, &keyed("k"), edits()?, &change("a")).await?;
    // It is there by now.
    let clash = world.trees.change_skill(tenant, agent, &keyed("l"), edits()?, &change("a")).await;
    let keyless = world.trees.change_skill(tenant, agent, &by("ada"), edits()?, &change("a")).await;

    assert_eq!((first.revision, again.repeated), (again.revision, true));
    assert!(matches!(clash, Err(Error::Clash { .. })), "{clash:?}");
    assert!(matches!(keyless, Err(Error::Invalid(_))), "{keyless:?}");
    let changes = world.trees.skill_changes(tenant, None, 10).await?;
    assert_eq!(changes.len(), 1);
    assert_eq!((&changes[0].change, changes[0].actor.as_str()), (&change("a"), "ada"));
    assert_eq!(
        world.trees.skill_change_by_key(tenant, agent, "k").await?.as_ref(),
        changes.first()
    );
    assert_eq!(world.trees.skill_change_by_key(tenant, AgentId::generate(), "k").await?, None);
    assert_eq!(world.trees.skill_changes(TenantId::generate(), None, 10).await?, []);
    assert_eq!(world.trees.skill_changes(tenant, Some(changes[0].id), 10).await?, []);
    Ok(())
}

#[tokio::test]
async fn a_use_counts_once_for_a_call_and_goes_with_its_agent() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (tenant, agent) = (world.tenant, world.agent);
    let sessions = [SessionId::generate(), SessionId::generate()];

    for (session, key) in [(0, "a"), (0, "a"), (0, "b"), (1, "c")] {
        world.trees.record_skill_use(tenant, agent, "plan", sessions[session], key).await?;
    }

    let uses = world.trees.skill_uses(tenant, agent).await?;
    assert_eq!((uses.len(), uses[0].skill.as_str(), uses[0].uses), (1, "plan", 3));
    assert!(uses[0].age.as_secs() < 60, "{:?}", uses[0].age);
    assert_eq!(world.trees.skill_uses(TenantId::generate(), agent).await?, []);
    assert_eq!(world.trees.skill_uses(tenant, AgentId::generate()).await?, []);
    world.trees.delete_tree(tenant, agent).await?;
    assert_eq!(world.number("select count(*) from workspace.skill_uses").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_tenants_word_on_installations_is_its_own_and_the_audit_is_written_once()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let word = json!({ "enabled": false });

    world.trees.set_skill_policy(world.tenant, "ada", &json!({})).await?;
    world.trees.set_skill_policy(world.tenant, "ada", &word).await?;

    assert_eq!(world.trees.skill_policy(world.tenant).await?, Some(word));
    assert_eq!(world.trees.skill_policy(TenantId::generate()).await?, None);
    let edits = vec![put("skills/a/SKILL.md", "x")?];
    world.trees.change_skill(world.tenant, world.agent, &keyed("k"), edits, &change("a")).await?;
    let mut tx = world.pools()?.tenant(world.tenant).await?;
    let update = "update workspace.skill_changes set actor = 'eve'";
    assert!(holdfast_pg::query(update).execute(tx.conn()).await.is_err());
    tx.rollback().await?;
    // Rows go with their tenant, and only then.
    let mut tx = world.pools()?.tenant(world.tenant).await?;
    let delete = "delete from workspace.skill_changes";
    assert_eq!(holdfast_pg::query(delete).execute(tx.conn()).await?.rows_affected(), 0);
    tx.rollback().await?;
    for table in ["skill_policies", "skill_changes", "skill_uses"] {
        let mut tx = world.pools()?.tenant(TenantId::generate()).await?;
        let sql = sqlx::AssertSqlSafe(format!("select count(*) from workspace.{table}"));
        let found: i64 = holdfast_pg::query_scalar(sql).fetch_one(tx.conn()).await?;
        assert_eq!(found, 0, "{table}");
    }
    Ok(())
}
