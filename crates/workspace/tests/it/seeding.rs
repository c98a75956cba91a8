//! A new agent has its first files, and they are its own from then on.

use holdfast_workspace::{CommitOutcome, LogFilter, TEMPLATES};

use crate::world::{World, delete};

#[tokio::test]
async fn a_new_agent_has_its_eight_files_as_revision_one() -> anyhow::Result<()> {
    let world = World::start().await?;

    let seeded = world.trees.seed(world.tenant, world.agent).await?;

    assert_eq!(seeded, CommitOutcome { revision: 1.into(), changed: 8, repeated: false });
    for (name, text) in TEMPLATES {
        assert_eq!(world.text(name).await?.as_deref(), Some(text));
    }
    let filter = LogFilter { limit: 10, ..LogFilter::default() };
    let log = world.trees.log(world.tenant, world.agent, &filter).await?;
    assert_eq!((log.len(), log[0].author.as_str()), (1, "holdfast"));
    Ok(())
}

#[tokio::test]
async fn seeding_again_brings_nothing_back() -> anyhow::Result<()> {
    let world = World::start().await?;
    let seed = || world.trees.seed(world.tenant, world.agent);
    let at_once = futures::future::join_all([seed(), seed(), seed()]).await;
    world.commit(vec![delete("BOOTSTRAP.md")?]).await?;

    let again = seed().await?;

    let mut made = 0;
    for seeded in at_once {
        made += usize::from(!seeded?.repeated);
    }
    assert_eq!(made, 1);
    assert_eq!(again, CommitOutcome { revision: 2.into(), changed: 0, repeated: true });
    assert_eq!(world.text("BOOTSTRAP.md").await?, None);
    Ok(())
}
